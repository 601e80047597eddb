// The part of the model that is here, what of it is seen, and the node that is selected.

import { Camera } from "./graph_camera.js";
import { Model } from "./graph_model.js";
import { Painter } from "./graph_painter.js";
import { Panel, known } from "./graph_panel.js";
import { _ } from "./said.js";

const NEAR = 1;
const LEGIBLE = 0.55;
const MARGIN = 24; // pixels above the beginning of a model
const SETTLED = 90; // ms that a node stays selected before its facts are asked for

export class View {
  #part;
  #states = null;
  #asked = 0;
  #due = 0;
  #painted = false;
  #settling = 0;

  /** `part(name)` is an element of the page; `probes` is the address of a target's probes. */
  constructor(data, part, probes) {
    this.#part = part;
    this.data = data;
    this.canvas = part("canvas");
    this.hops = part("hops");
    this.answer = null;
    this.model = null;
    this.selected = -1;
    /** What is here, or soon will be, is what is around these units. */
    this.units = "";
    this.failed = false;
    this.painter = new Painter(this.canvas);
    this.camera = new Camera(() => this.draw());
    this.panel = new Panel(part("panel"), {
      probes,
      go: (unit) => this.go(unit),
      around: (unit) => this.load(String(unit)),
      close: () => this.drop(),
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.painter.recolour();
      this.draw();
    });
    new ResizeObserver(() => {
      this.#measure();
      if (this.model) this.painter.draw(this.camera, this.selected); // now: a canvas that changes its size is empty
    }).observe(this.canvas);
  }

  get whole() {
    return this.model !== null && this.model.units.length === this.model.total;
  }

  /** Loads what is around these units, as far as the control says, and looks at them; `mark` is whether to select them. */
  async load(units, { mark = true, quiet = true } = {}) {
    const kept = units === this.units ? this.model?.unit(this.selected) : undefined;
    this.units = units;
    const asked = ++this.#asked;
    let answer;
    try {
      answer = await this.data.part(units, this.hops.value || null);
    } catch (problem) {
      if (asked === this.#asked) this.complain(problem);
      return;
    }
    if (asked !== this.#asked) return; // something else was wanted since
    this.#take(answer);
    this.look(units, { mark, kept, quiet });
  }

  #take(answer) {
    this.answer = answer;
    this.model = new Model(answer);
    this.selected = -1;
    this.failed = false;
    if (this.#states) this.model.learn(this.#states);
    this.painter.show(this.model);
    this.camera.bound(this.model.box());
    this.#part("status").hidden = true;
    const { length } = answer.units;
    this.#part("size").textContent = this.whole ? _("{count} nodes", { count: length }) : _("{count} of {total} nodes", { count: length, total: answer.total });
  }

  /** Selects these units, or the one that was `kept`, and moves there. */
  look(units, { mark = true, kept = undefined, quiet = true } = {}) {
    const nodes = this.model.cluster(units);
    const node = this.model.place.get(kept) ?? (mark ? nodes[0] : undefined);
    if (node === undefined) this.drop();
    else this.select(node, { quiet });
    this.#measure(); // the panel takes its share
    this.#frame(nodes, mark);
  }

  /** All that is here where it is legible so; else these nodes, in the middle, or as the beginning. */
  #frame(nodes, middle) {
    const { camera, model } = this;
    const all = model.box();
    if (nodes.length === 0 || camera.filling(all) >= LEGIBLE) {
      camera.fit(all, NEAR, { glide: false });
      return;
    }
    const box = model.box(nodes);
    const scale = Math.max(LEGIBLE, Math.min(NEAR, camera.filling(box)));
    if (middle) camera.go((box.left + box.right) / 2, (box.top + box.bottom) / 2, scale, { glide: false });
    else camera.go(model.x[nodes[0]], all.top + (camera.height / 2 - MARGIN) / scale, scale, { glide: false });
  }

  learn(states) {
    this.#states = states;
    if (!this.model) return;
    this.model.learn(states);
    if (this.selected >= 0) this.panel.say(this.model, this.selected);
    this.draw();
  }

  /** Goes to a unit; where it is not here, loads what is around it. */
  async go(unit) {
    if (this.model?.place.get(unit) === undefined) {
      await this.load(String(unit), { quiet: false });
      return;
    }
    this.select(this.model.place.get(unit));
    this.#measure();
    this.#centre(this.selected);
  }

  #centre(node) {
    this.camera.go(this.model.x[node], this.model.y[node], Math.max(this.camera.scale, LEGIBLE));
  }

  select(node, { quiet = false } = {}) {
    const { model } = this;
    const unit = model.unit(node);
    this.selected = node;
    this.panel.show(model, node, this.data.known(unit));
    clearTimeout(this.#settling);
    if (unit !== undefined && !this.data.known(unit)) this.#settling = setTimeout(() => this.#describe(unit), SETTLED);
    if (!quiet) {
      this.#part("says").textContent = _("{op}, {known}, {name}. {before} before, {after} after.", {
        op: model.ops[node],
        known: known(model, node),
        name: model.names[node],
        before: model.neighbours(node, false).length,
        after: model.neighbours(node, true).length,
      });
    }
    this.draw();
  }

  async #describe(unit) {
    const selected = () => this.model.unit(this.selected) === unit;
    try {
      const answer = await this.data.facts(unit);
      if (selected()) this.panel.show(this.model, this.selected, answer);
    } catch (problem) {
      if (selected()) this.panel.fail(problem.message);
    }
  }

  drop() {
    const inside = this.panel.element.contains(document.activeElement);
    this.selected = -1;
    clearTimeout(this.#settling);
    this.panel.hide();
    if (inside) this.canvas.focus({ preventScroll: true });
    this.draw();
  }

  /** The node at a pixel, or -1. */
  at(x, y) {
    return this.model?.at(...this.camera.world(x, y)) ?? -1;
  }

  point(x, y) {
    this.canvas.focus({ preventScroll: true });
    const node = this.at(x, y);
    if (node >= 0) this.select(node);
    else if (this.model) this.drop();
  }

  hover(x, y) {
    const node = this.at(x, y);
    this.canvas.classList.toggle("on-node", node >= 0);
    const title = node >= 0 ? `${this.model.ops[node]} · ${this.model.names[node]}` : "";
    if (this.canvas.title !== title) this.canvas.title = title;
  }

  /** Along the edges, or to the side. Where the part that is here ends, what comes next is loaded. */
  async walk(direction) {
    const { model, selected } = this;
    if (!model) return;
    let next;
    if (selected < 0) next = model.nearest(this.camera.x, this.camera.y);
    else if (direction === "left" || direction === "right") next = model.beside(selected, direction === "right");
    else next = model.along(selected, direction === "down");
    if (next >= 0) {
      this.select(next);
      this.camera.reveal(model.box([next]));
    } else if (direction === "up" || direction === "down") {
      await this.#beyond(direction === "down");
    }
  }

  async #beyond(down) {
    const unit = this.model.unit(this.selected);
    if (unit === undefined || this.whole) return;
    const facts = await this.data.facts(unit).catch(() => null);
    const next = down ? facts?.outputs.flatMap(({ to }) => to)[0] : facts?.inputs.find(({ from }) => from !== null)?.from;
    if (next !== undefined && this.model.unit(this.selected) === unit) await this.go(next);
  }

  /** To what the panel says of the node. */
  open() {
    if (!this.model) return;
    if (this.selected < 0) this.select(this.model.nearest(this.camera.x, this.camera.y));
    this.panel.focus();
  }

  fit() {
    if (this.model) this.camera.fit(this.model.box());
  }

  complain(problem) {
    this.failed = this.model === null;
    const status = this.#part("status");
    status.classList.toggle("over", !this.failed);
    status.textContent = problem.message;
    status.hidden = false;
  }

  #measure() {
    this.camera.resize(this.canvas.clientWidth, this.canvas.clientHeight);
  }

  draw() {
    if (this.#due || !this.model) return;
    this.#due = requestAnimationFrame(() => {
      this.#due = 0;
      this.painter.draw(this.camera, this.selected);
      if (!this.#painted) setTimeout(() => performance.mark("graph-painted")); // after the frame
      this.#painted = true;
    });
  }
}
