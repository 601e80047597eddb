// A job's page while the job goes on. htmx swaps what changes; here are the strip, the seconds, and the page anew where
// it gets other parts.

import { _ } from "./said.js";
import { recolour } from "./strip.js";

const stream = document.getElementById("stream");
const strip = document.getElementById("strip");
const away = document.getElementById("away");
const skew = Date.now() - Date.parse(stream.dataset.now);

stream.addEventListener("verdicts", ({ detail }) => {
  const states = JSON.parse(detail.data);
  if (strip) recolour(strip, states);
  document.dispatchEvent(new CustomEvent("states", { detail: states }));
});

// The page is loaded again. An open menu may hold a form that is about to be confirmed: then this waits until the menu
// is closed, and the stream, closed at once, brings no more updates meanwhile.
function anew() {
  stream.remove();
  const menu = document.querySelector(".menu[open]");
  if (menu) menu.addEventListener("toggle", anew, { once: true });
  else location.reload();
}
stream.addEventListener("anew", anew);
stream.addEventListener("htmx:sse:error", ({ detail }) => {
  if ([401, 403, 404].includes(detail.status)) anew(); // deleted, or logged out: the page says which
  else away.textContent = _("The server does not answer. This page goes on by itself as soon as it does.");
});
stream.addEventListener("htmx:sse:after:connection", () => {
  away.textContent = "";
});

// As `duration` of the report writes it.
function lasting(seconds) {
  if (seconds < 60) return `${seconds} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
}

setInterval(() => {
  for (const time of document.querySelectorAll("[data-since]")) {
    const seconds = Math.max(Math.floor((Date.now() - skew - Date.parse(time.dataset.since)) / 1000), 0);
    const text = lasting(seconds);
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);
