// A part of the model as flat arrays, made in one pass over the answer: what is drawn sixty times a second allocates
// nothing. Nodes are the part's units in the answer's order, then the graph's own inputs and outputs.

import { _ } from "./said.js";

export const WIDTH = 150;
export const HEIGHT = 34;
/** What is known of a unit, as its number in `state`. A graph's own input or output is the one after these. */
export const STATES = ["pass", "culprit", "suspected", "needs_context", "unknown"];
export const CULPRIT = 1;
export const UNKNOWN = 4;
export const TERMINAL = 5;

/** `3,5-7` as pairs of first and last. */
export function ranges(text) {
  return text === "" ? [] : text.split(",").map((part) => {
    const [first, last = first] = part.split("-");
    return [Number(first), Number(last)];
  });
}

export class Model {
  constructor(answer) {
    const { units, inputs, outputs, edges } = answer;
    const terminals = [...inputs, ...outputs];
    this.total = answer.total;
    this.units = units;
    this.count = units.length + terminals.length;
    this.ops = answer.ops.concat(inputs.map(() => _("graph input")), outputs.map(() => _("graph output")));
    this.names = answer.names.concat(terminals.map(([name]) => name));
    this.tensors = answer.tensors.concat(terminals.map(([name, type]) => [name, type]));
    this.x = Float32Array.from(answer.x.concat(terminals.map((terminal) => terminal[3])));
    this.y = Float32Array.from(answer.y.concat(terminals.map((terminal) => terminal[4])));
    this.state = new Uint8Array(this.count).fill(UNKNOWN).fill(TERMINAL, units.length);
    /** The number of the culprit that a node is part of, or 0. */
    this.number = new Uint16Array(this.count);
    this.place = new Map(units.map((unit, node) => [unit, node]));
    this.#route(edges.concat(this.#terminalEdges(inputs, outputs, answer.tensors.length)));
  }

  #terminalEdges(inputs, outputs, tensors) {
    const first = this.units.length;
    const after = first + inputs.length;
    return [
      ...inputs.flatMap((input, i) => input[2].map((user, e) => [first + i, user, tensors + i, input[5][e]])),
      ...outputs.flatMap((output, i) =>
        output[2].map((maker, e) => [maker, after + i, tensors + inputs.length + i, output[5][e]])),
    ];
  }

  /** Edge `e` goes through points `start[e]` to `start[e + 1]` of `points`, from below a node to above the next. */
  #route(edges) {
    const count = edges.length;
    this.from = new Uint32Array(count);
    this.to = new Uint32Array(count);
    this.tensor = new Uint32Array(count);
    /** Whether it is the first one of its tensor, which has the label. */
    this.labelled = new Uint8Array(count);
    this.start = new Uint32Array(count + 1);
    this.points = new Float32Array(edges.reduce((sum, edge) => sum + edge[3].length + 4, 0));
    this.left = new Float32Array(count);
    this.right = new Float32Array(count);
    this.top = new Float32Array(count);
    this.bottom = new Float32Array(count);
    const seen = new Uint8Array(this.tensors.length);
    const { points, x, y } = this;
    let at = 0;
    edges.forEach(([from, to, tensor, bends], e) => {
      this.from[e] = from;
      this.to[e] = to;
      this.tensor[e] = tensor;
      this.labelled[e] = 1 - seen[tensor];
      seen[tensor] = 1;
      this.start[e] = at;
      points[at++] = x[from];
      points[at++] = y[from] + HEIGHT / 2;
      for (const value of bends) points[at++] = value;
      points[at++] = x[to];
      points[at++] = y[to] - HEIGHT / 2;
      let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
      for (let i = this.start[e]; i < at; i += 2) {
        left = Math.min(left, points[i]);
        right = Math.max(right, points[i]);
        top = Math.min(top, points[i + 1]);
        bottom = Math.max(bottom, points[i + 1]);
      }
      this.left[e] = left;
      this.right[e] = right;
      this.top[e] = top;
      this.bottom[e] = bottom;
    });
    this.start[count] = at;
  }

  /** Takes in what is known, as `/states` tells it. */
  learn({ states, culprits }) {
    const state = new Uint8Array(this.total).fill(UNKNOWN);
    STATES.forEach((name, value) => {
      for (const [first, last] of ranges(states[name] ?? "")) state.fill(value, first, last + 1);
    });
    const number = new Uint16Array(this.total);
    for (const culprit of [...culprits].reverse()) {
      for (const [first, last] of ranges(culprit.places)) number.fill(culprit.number, first, last + 1);
    }
    this.units.forEach((unit, node) => {
      this.state[node] = state[unit];
      this.number[node] = number[unit];
    });
  }

  /** The unit of a node; undefined of the graph's own inputs and outputs. */
  unit(node) {
    return this.units[node];
  }

  /** The node below a point, or -1. What is drawn last is on top. */
  at(x, y) {
    for (let node = this.count - 1; node >= 0; node--) {
      if (Math.abs(this.y[node] - y) <= HEIGHT / 2 && Math.abs(this.x[node] - x) <= WIDTH / 2) return node;
    }
    return -1;
  }

  nearest(x, y) {
    let best = -1, least = Infinity;
    for (let node = 0; node < this.count; node++) {
      const distance = Math.hypot(this.x[node] - x, this.y[node] - y);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  /** The nodes that an edge leads to (`down`) or comes from. A pass over all edges costs 0.05 ms of 35 000. */
  neighbours(node, down) {
    const [here, there] = down ? [this.from, this.to] : [this.to, this.from];
    const found = [];
    here.forEach((end, e) => end === node && !found.includes(there[e]) && found.push(there[e]));
    return found;
  }

  /** The nearest of those, or -1: rows count, and what is straight ahead. */
  along(node, down) {
    const away = (other) => Math.abs(this.y[other] - this.y[node]) + Math.abs(this.x[other] - this.x[node]) / 100;
    return this.neighbours(node, down).sort((a, b) => away(a) - away(b))[0] ?? -1;
  }

  /** The next node in the same row, to the right or to the left; -1 at its end. */
  beside(node, right) {
    let best = -1, least = Infinity;
    for (let other = 0; other < this.count; other++) {
      const distance = (this.x[other] - this.x[node]) * (right ? 1 : -1);
      if (distance > 0 && distance < least && Math.abs(this.y[other] - this.y[node]) < HEIGHT) {
        [best, least] = [other, distance];
      }
    }
    return best;
  }

  /** A frame around these nodes, or around all that is here. */
  box(nodes = this.x.keys()) {
    const box = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
    for (const node of nodes) {
      box.left = Math.min(box.left, this.x[node] - WIDTH / 2);
      box.right = Math.max(box.right, this.x[node] + WIDTH / 2);
      box.top = Math.min(box.top, this.y[node] - HEIGHT / 2);
      box.bottom = Math.max(box.bottom, this.y[node] + HEIGHT / 2);
    }
    return box;
  }

  /** Those of `text`'s units that hang together with the first of them that is here: one place of a culprit. */
  cluster(text) {
    const wanted = new Set();
    for (const [first, last] of ranges(text)) {
      for (let unit = first; unit <= last; unit++) if (this.place.has(unit)) wanted.add(this.place.get(unit));
    }
    const found = new Set([...wanted].slice(0, 1));
    for (const node of found) {
      for (const next of [...this.neighbours(node, true), ...this.neighbours(node, false)]) {
        if (wanted.has(next)) found.add(next);
      }
      if (found.size > 200) break; // of one that is too large only its beginning can be looked at
    }
    return [...found];
  }
}
