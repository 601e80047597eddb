// The selected node in words: what it is, what is known of it, what it is given and what becomes of that.

import { STATES } from "./graph_model.js";
import { _ } from "./said.js";

const SAYS = [
  _("compiles"),
  _("culprit: the compiler refuses it"),
  _("suspected"),
  _("needs context: fails only where it is cut out"),
  _("unknown"),
  "",
];
const LISTED = 40;

/** What is known of a node, in words. */
export function known(model, node) {
  const number = model.number[node];
  return number ? _("culprit {number}: the compiler refuses it", { number }) : SAYS[model.state[node]];
}

export class Panel {
  #body;
  #name = "";

  /** `go(unit)` jumps to another node, `around(unit)` loads what is around this one, `close()` gives the focus back. */
  constructor(element, { probes, go, around, close }) {
    this.element = element;
    this.probes = probes;
    this.#body = element.querySelector(".graph-facts");
    element.addEventListener("click", (event) => {
      const link = event.target.closest("[data-unit]");
      if (link) go(Number(link.dataset.unit));
      const button = event.target.closest("[data-do]");
      if (button?.dataset.do === "close") close();
      if (button?.dataset.do === "around") around(this.unit);
      if (button?.dataset.do === "copy") copy(this.#name, button, this.#body.querySelector(".graph-name"));
    });
    element.addEventListener("keydown", (event) => event.key === "Escape" && close());
  }

  /** At once what the picture has; `answer` follows once it is there. */
  show(model, node, answer = null) {
    const unit = (this.unit = model.unit(node));
    const name = answer?.name ?? model.names[node];
    this.#name = name;
    const parts = [
      made("h3", "", model.ops[node]),
      made("p", "graph-name", name),
      this.#says(model, node),
    ];
    if (unit === undefined) {
      parts.push(made("p", "dim small", model.tensors.find(([tensor]) => tensor === name)?.[1] ?? ""));
    } else if (answer) {
      parts.push(...described(answer, model));
    } else {
      parts.push(made("p", "dim small", "…"));
    }
    this.#body.replaceChildren(...parts);
    for (const button of this.element.querySelectorAll("[data-do=around]")) button.hidden = unit === undefined;
    const probes = this.element.querySelector("a.graph-probes");
    probes.hidden = unit === undefined;
    probes.href = `${this.probes}&unit=${unit}`;
    this.element.hidden = false;
  }

  fail(sentence) {
    this.#body.lastElementChild.textContent = sentence;
  }

  /** What is known of it has changed. */
  say(model, node) {
    this.#body.querySelector(".graph-state").replaceWith(this.#says(model, node));
  }

  focus() {
    this.element.querySelector(".graph-facts").focus();
  }

  hide() {
    this.element.hidden = true;
  }

  #says(model, node) {
    const line = made("p", "graph-state", known(model, node));
    line.dataset.state = STATES[model.state[node]] ?? "";
    return line;
  }
}

function described(answer, model) {
  const parts = [];
  if (Object.keys(answer.facts).length > 0) {
    const list = made("dl", "graph-list");
    for (const [label, value] of Object.entries(answer.facts)) {
      list.append(made("dt", "", titled(label)), made("dd", "", String(value)));
    }
    parts.push(list);
  }
  const given = answer.inputs.map(({ tensor, type, from }) => ({ tensor, type, units: from === null ? [] : [from] }));
  const makes = answer.outputs.map(({ tensor, type, to }) => ({ tensor, type, units: to }));
  for (const [title, tensors, sign] of [[_("Inputs"), given, _("from")], [_("Outputs"), makes, _("to")]]) {
    if (tensors.length === 0) continue;
    const list = made("ul", "graph-tensors");
    for (const tensor of tensors.slice(0, LISTED)) list.append(line(tensor, sign, model));
    if (tensors.length > LISTED) list.append(made("li", "dim", _("and {more} more", { more: tensors.length - LISTED })));
    parts.push(made("h4", "", title), list);
  }
  return parts;
}

/** `attribute axis` and `input 1`, as the service calls facts. */
function titled(label) {
  const [kind, ...rest] = label.split(" ");
  const name = rest.join(" ");
  if (kind === "attribute") return _("attribute {name}", { name });
  return kind === "input" ? _("input {name}", { name }) : label;
}

function line({ tensor, type, units }, sign, model) {
  const entry = made("li");
  entry.append(made("code", "", tensor), " ", made("span", "dim", type));
  if (units.length > 0) {
    const to = made("span", "graph-ends", `${sign} `);
    for (const unit of units.slice(0, LISTED)) {
      const node = model.place.get(unit);
      const link = made("button", "graph-link", node === undefined ? _("unit {number}", { number: unit }) : model.ops[node]);
      link.type = "button";
      link.dataset.unit = unit;
      if (node !== undefined) link.title = model.names[node];
      to.append(link, " ");
    }
    entry.append(to);
  }
  return entry;
}

function made(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

/** Without https there is no clipboard for scripts, but what is selected can still be copied. */
async function copy(text, button, shown) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(shown);
    document.execCommand("copy");
  }
  const label = button.textContent;
  button.textContent = _("Copied");
  setTimeout(() => (button.textContent = label), 1500);
}
