// Text on the canvas. How much of a name fits is measured once, when it is first seen.

import { WIDTH } from "./graph_model.js";

const FONTS = {
  op: "600 13px system-ui, sans-serif",
  name: "10.5px system-ui, sans-serif",
  type: "10px ui-monospace, monospace",
  badge: "600 11px system-ui, sans-serif",
};
const ROOM = WIDTH - 18;
const TYPE = 32; // characters

export class Labels {
  #context;
  #ground = "";

  constructor(context) {
    this.#context = context;
  }

  show(model) {
    this.model = model;
    this.ops = new Array(model.count);
    this.names = new Array(model.count);
    this.types = new Array(model.tensors.length);
    this.widths = new Array(model.tensors.length);
  }

  /** What follows is of this kind and colour; with a `ground`, no line is seen behind it. */
  begin(kind, colour, ground = "") {
    const context = this.#context;
    context.font = FONTS[kind];
    context.fillStyle = colour;
    context.textAlign = kind === "type" ? "center" : "left";
    this.#ground = ground;
  }

  op(node, x, y) {
    this.#context.fillText((this.ops[node] ??= this.#clip(this.model.ops[node])), x, y);
  }

  /** The end of a name tells most. */
  name(node, x, y) {
    this.#context.fillText((this.names[node] ??= this.#clip(this.model.names[node], true)), x, y);
  }

  type(tensor, x, y) {
    const text = (this.types[tensor] ??= this.#short(this.model.tensors[tensor][1]));
    const context = this.#context;
    const width = (this.widths[tensor] ??= context.measureText(text).width);
    const ink = context.fillStyle;
    context.fillStyle = this.#ground;
    context.fillRect(x - width / 2 - 2, y - 9, width + 4, 12);
    context.fillStyle = ink;
    context.fillText(text, x, y);
  }

  /** A culprit's number, on the corner of its node. */
  badge(number, x, y, colours) {
    const context = this.#context;
    const text = String(number);
    const width = 11 + 7 * text.length;
    context.font = FONTS.badge;
    context.textAlign = "center";
    context.fillStyle = colours.bad;
    context.beginPath();
    context.roundRect(x - width + 6, y - 9, width, 17, 5);
    context.fill();
    context.fillStyle = colours["on-bad"];
    context.fillText(text, x + 6 - width / 2, y + 4);
  }

  #short(type) {
    return type.length <= TYPE ? type : `${type.slice(0, TYPE - 1)}…`;
  }

  #clip(text, fromLeft = false) {
    const measured = (some) => this.#context.measureText(some).width;
    const cut = (length) => (fromLeft ? `…${text.slice(text.length - length)}` : `${text.slice(0, length)}…`);
    if (text.length < 60 && measured(text) <= ROOM) return text;
    let fits = 1, tooLong = Math.min(text.length, 80);
    while (tooLong - fits > 1) {
      const middle = (fits + tooLong) >> 1;
      if (measured(cut(middle)) <= ROOM) fits = middle;
      else tooLong = middle;
    }
    return cut(fits);
  }
}
