// A button after each text that is there to be copied, `data-copy`. Without this script it is selected by hand.

import { _ } from "./said.js";

const SAID_FOR = 4000; // milliseconds

for (const text of document.querySelectorAll("[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = _("Copy");
  const about = text.closest("[aria-labelledby]");
  if (about) button.setAttribute("aria-describedby", about.getAttribute("aria-labelledby"));
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  said.className = "dim small";
  const row = document.createElement("p");
  row.className = "row";
  row.append(button, said);
  text.after(row);
  let timer = 0;
  button.addEventListener("click", async () => {
    said.textContent = (await copied(text)) ? _("Copied") : _("Selected: press Ctrl+C");
    clearTimeout(timer);
    timer = setTimeout(() => (said.textContent = ""), SAID_FOR);
  });
}

// Browsers give the clipboard to pages of HTTPS only; what is selected can be copied over plain HTTP, too.
async function copied(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}
