// Asks for the rows anew while somebody looks: often while something runs. Ticks, focus and scroll stay, since htmx
// changes only what differs.

const GOING = 2000;
const IDLE = 15000;

const jobs = document.getElementById("jobs");
let last = Date.now();

function pause() {
  return document.getElementById("rows")?.dataset.going === "yes" ? GOING : IDLE;
}

function again() {
  last = Date.now();
  htmx.trigger(jobs, "again");
}

setInterval(() => {
  if (!document.hidden && Date.now() - last >= pause()) again();
}, 500);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && Date.now() - last >= pause()) again();
});

// Two are compared: the button says how many are missing.
function ticked() {
  const button = document.getElementById("compare");
  if (button) button.disabled = jobs.querySelectorAll("input[name=job]:checked").length !== 2;
}

jobs.addEventListener("change", ticked);
document.addEventListener("htmx:after:swap", ticked);
ticked();
