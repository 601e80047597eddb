// The verdict strip takes the colours of what is known now. `onnxbisect.report.html` has drawn it: one cell a unit,
// or in large models one bar for each run of units that are alike.

import { _ } from "./said.js";

const SVG = "http://www.w3.org/2000/svg";
const PITCH = 16;
const CELL = 14;
const WORDS = {
  culprit: _("culprit"),
  needs_context: _("needs context"),
  pass: _("compiles"),
  suspected: _("suspected"),
  unknown: _("unknown"),
};
const MOST_NUMBERED = 640;

function* members(ranges) {
  for (const range of ranges.split(",").filter(Boolean)) {
    const [first, last = first] = range.split("-").map(Number);
    for (let unit = first; unit <= last; unit++) yield unit;
  }
}

/** `states` is what `/v1/jobs/{id}/states` answers. */
export function recolour(strip, { units, states, culprits }) {
  const state = new Array(units).fill("unknown");
  for (const [name, ranges] of Object.entries(states)) for (const unit of members(ranges)) state[unit] = name;
  const number = new Map();
  for (const culprit of culprits) {
    for (const unit of members(culprit.places)) if (!number.has(unit)) number.set(unit, culprit.number);
  }
  const cells = strip.querySelectorAll(".strip rect");
  if (cells.length === units) {
    cells.forEach((cell, unit) => repaint(cell, state[unit], number.get(unit), units <= MOST_NUMBERED));
    return;
  }
  let start = 0;
  for (const row of strip.querySelectorAll(".strip svg")) {
    const columns = row.viewBox.baseVal.width / PITCH;
    redraw(row, state, number, start, Math.min(start + columns, units));
    start += columns;
  }
}

function repaint(cell, state, number, numbered) {
  if (!cell.classList.contains(state)) {
    cell.setAttribute("class", `u ${state}`);
    const title = cell.firstElementChild;
    title.textContent = title.textContent.replace(/[^·]*$/, ` ${WORDS[state] ?? state}`);
  }
  const link = cell.closest("a");
  if (link?.getAttribute("href") === (number && `#c${number}`)) return;
  link?.replaceWith(cell);
  if (number) cell.replaceWith(led(cell, number, numbered));
}

/** The cell, and a link from it to its culprit. */
function led(cell, number, numbered) {
  const link = made("a", { href: `#c${number}`, "aria-label": _("culprit {number}", { number }) });
  const shown = cell.isConnected ? cell.cloneNode(true) : cell;
  link.append(shown);
  if (numbered) {
    const text = made("text", { class: "n", x: Number(cell.getAttribute("x")) + CELL / 2, y: CELL - 2.5 });
    text.textContent = Math.min(number, 999);
    link.append(text);
  }
  return link;
}

function redraw(row, state, number, start, end) {
  const drawn = state.slice(start, end).map((name, index) => name + (number.get(start + index) ?? "")).join(" ");
  if (row.dataset.drawn === drawn) return;
  row.dataset.drawn = drawn;
  const bars = [];
  for (let unit = start, run; unit < end; unit += run) {
    run = 1;
    while (!number.has(unit) && unit + run < end && state[unit + run] === state[unit] && !number.has(unit + run)) run++;
    const bar = made("rect", {
      class: `u ${state[unit]}`, x: (unit - start) * PITCH + 1, y: 1, width: run * PITCH - (PITCH - CELL), height: CELL, rx: 2,
    });
    const title = made("title", {});
    const words = WORDS[state[unit]] ?? state[unit];
    title.textContent =
      run > 1
        ? _("units {first} to {last}: {state}", { first: unit, last: unit + run - 1, state: words })
        : _("unit {number}: {state}", { number: unit, state: words });
    bar.append(title);
    bars.push(number.has(unit) ? led(bar, number.get(unit), false) : bar);
  }
  row.replaceChildren(...bars);
}

function made(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
