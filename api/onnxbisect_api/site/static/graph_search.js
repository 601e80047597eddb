// Finding a node by its name or op: a field with a list of what matches, for the keyboard first.

import { _ } from "./said.js";

const MOST = 50;

/** `nodes()` gives `{units, ops, names}` to search; `more()` is called once when somebody wants to search; `choose(unit)`. */
export function search(input, list, { nodes, more, choose }) {
  let current = -1;
  let asked = false;

  function show() {
    const wanted = input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const found = wanted.length === 0 ? [] : matches(nodes(), wanted);
    list.replaceChildren(...found.map(option));
    current = -1;
    move(found.length > 0 ? 0 : -1);
    if (wanted.length > 0 && found.length === 0) list.append(nothing());
    list.hidden = wanted.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function move(to) {
    list.children[current]?.setAttribute("aria-selected", "false");
    current = to;
    const option = list.children[current];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function take(option) {
    if (option?.dataset.unit === undefined) return;
    close();
    choose(Number(option.dataset.unit));
  }

  input.addEventListener("focus", () => {
    if (!asked) more().then(() => document.activeElement === input && show());
    asked = true;
  });
  input.addEventListener("input", show);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const count = list.querySelectorAll("[data-unit]").length;
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps && count > 0) {
      if (list.hidden) show();
      else move((current + steps[event.key] + count) % count);
    } else if (event.key === "Enter") {
      if (list.hidden) show();
      else take(list.children[current]);
    } else if (event.key === "Escape" && !list.hidden) {
      close();
    } else {
      return;
    }
    event.preventDefault();
  });
  // before the field loses the focus, which closes the list
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => take(event.target.closest("[data-unit]")));
}

/** At most `MOST` nodes whose op or name has every word; those whose op begins with the first word come first. */
function matches({ units, ops, names }, words) {
  const first = [], others = [];
  for (let i = 0; i < units.length && first.length < MOST; i++) {
    const op = ops[i].toLowerCase();
    const text = `${op} ${names[i].toLowerCase()}`;
    if (!words.every((word) => text.includes(word))) continue;
    (op.startsWith(words[0]) ? first : others).push({ unit: units[i], op: ops[i], name: names[i] });
  }
  return [...first, ...others].slice(0, MOST);
}

function option({ unit, op, name }, index) {
  const line = document.createElement("li");
  line.id = `graph-found-${index}`;
  line.role = "option";
  line.dataset.unit = unit;
  line.setAttribute("aria-selected", "false");
  const strong = document.createElement("b");
  strong.textContent = op;
  const rest = document.createElement("span");
  rest.textContent = name;
  line.append(strong, rest);
  return line;
}

function nothing() {
  const line = document.createElement("li");
  line.className = "dim";
  line.role = "option";
  line.setAttribute("aria-disabled", "true");
  line.textContent = _("No node has this in its name or op.");
  return line;
}
