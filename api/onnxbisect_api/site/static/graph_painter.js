// Draws what the camera sees. Which nodes and edges these are is found by a pass over flat arrays, which costs less than
// a tenth of a millisecond of 28 000; the time goes into pixels. So what is too small to be read is drawn as less.

import { Labels } from "./graph_labels.js";
import { COLOURS, CONTEXT, LOOKS, ORDER } from "./graph_looks.js";
import { CULPRIT, HEIGHT, WIDTH } from "./graph_model.js";

/** Scales from which on there is text, types of tensors, shapes instead of mere rectangles. */
const TEXT = 0.45;
const TYPES = 0.75;
const SHAPES = 0.22;
/** Edges of more nodes than these are no help, and cost the most. */
const EDGES = 3000;
/** From afar, a culprit is at least this wide and high, in pixels. */
const SPOT = 5;
const RADIUS = 6;

export class Painter {
  #canvas;
  #context;
  #colours = {};
  #labels;
  #seen = new Uint32Array(0);
  #pixels = new Uint8Array(0);
  #left = 0;
  #top = 0;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#labels = new Labels(this.#context);
    this.recolour();
  }

  /** The page's colours, which follow the scheme. */
  recolour() {
    const style = getComputedStyle(this.#canvas);
    for (const name of COLOURS) this.#colours[name] = style.getPropertyValue(`--${name}`).trim();
  }

  /** Takes another model. */
  show(model) {
    this.model = model;
    this.#seen = new Uint32Array(model.count);
    this.#labels.show(model);
  }

  draw(camera, selected) {
    const began = performance.now();
    const { model } = this;
    const context = this.#context;
    const ratio = devicePixelRatio;
    const { scale, width, height } = camera;
    if (this.#canvas.width !== Math.round(width * ratio) || this.#canvas.height !== Math.round(height * ratio)) {
      this.#canvas.width = Math.round(width * ratio);
      this.#canvas.height = Math.round(height * ratio);
    }
    // Coordinates count from the view's corner: those of a large model exceed what a canvas computes with.
    const left = (this.#left = camera.x - width / 2 / scale);
    const top = (this.#top = camera.y - height / 2 / scale);
    const right = left + width / scale, bottom = top + height / scale;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.setTransform(scale * ratio, 0, 0, scale * ratio, 0, 0);
    const count = this.#look(left, top, right, bottom);
    if (count <= EDGES) this.#edges(left, top, right, bottom, scale, selected);
    if (scale >= SHAPES) this.#shapes(count);
    else this.#spots(count, scale, Math.ceil(width), Math.ceil(height));
    if (selected >= 0) this.#ring(selected, scale);
    if (scale >= TYPES) this.#types(left, top, right, bottom);
    if (scale >= TEXT) this.#texts(count);
    // Observers are notified; nothing is stored, since this runs as long as the page is open.
    performance.measure("graph-draw", { start: began });
    performance.clearMeasures("graph-draw");
  }

  /** Notes the nodes in sight; returns how many. */
  #look(left, top, right, bottom) {
    const { x, y, count } = this.model;
    const seen = this.#seen;
    const [l, t, r, b] = [left - WIDTH, top - HEIGHT, right + WIDTH, bottom + HEIGHT];
    let found = 0;
    for (let node = 0; node < count; node++) {
      if (y[node] > t && y[node] < b && x[node] > l && x[node] < r) seen[found++] = node;
    }
    return found;
  }

  #edges(left, top, right, bottom, scale, selected) {
    const { model } = this;
    const context = this.#context;
    context.setLineDash([]);
    for (const chosen of selected >= 0 ? [false, true] : [false]) {
      context.strokeStyle = context.fillStyle = this.#colours[chosen ? "link" : "control"];
      context.lineWidth = Math.max(chosen ? 2 : 1.2, (chosen ? 1 : 0.6) / scale);
      for (const tips of scale >= SHAPES ? [false, true] : [false]) {
        context.beginPath();
        for (let e = 0; e < model.from.length; e++) {
          if (model.bottom[e] < top || model.top[e] > bottom || model.right[e] < left || model.left[e] > right) continue;
          if ((model.from[e] === selected || model.to[e] === selected) !== chosen) continue;
          if (tips) this.#tip(e);
          else if (scale >= SHAPES) this.#curve(e);
          else this.#line(e);
        }
        if (tips) context.fill();
        else context.stroke();
      }
    }
  }

  /** Bows from row to row. In a row that it only passes it goes straight down, so that it touches no node there. */
  #curve(e) {
    const { points, start } = this.model;
    const context = this.#context;
    const last = start[e + 1] - 2;
    let x = points[start[e]] - this.#left, y = points[start[e] + 1] - this.#top;
    context.moveTo(x, y);
    for (let i = start[e] + 2; i <= last; i += 2) {
      const nextX = points[i] - this.#left, nextY = points[i + 1] - this.#top;
      const above = i < last ? nextY - HEIGHT / 2 : nextY - 6;
      const middle = (y + above) / 2;
      if (x === nextX) context.lineTo(x, above);
      else context.bezierCurveTo(x, middle, nextX, middle, nextX, above);
      x = nextX;
      y = i < last ? nextY + HEIGHT / 2 : above;
      if (i < last) context.lineTo(x, y);
    }
  }

  #line(e) {
    const { points, start } = this.model;
    this.#context.moveTo(points[start[e]] - this.#left, points[start[e] + 1] - this.#top);
    for (let i = start[e] + 2; i < start[e + 1]; i += 2) {
      this.#context.lineTo(points[i] - this.#left, points[i + 1] - this.#top);
    }
  }

  #tip(e) {
    const { points, start } = this.model;
    const x = points[start[e + 1] - 2] - this.#left, y = points[start[e + 1] - 1] - this.#top;
    this.#context.moveTo(x, y);
    this.#context.lineTo(x - 4, y - 8);
    this.#context.lineTo(x + 4, y - 8);
  }

  #shapes(count) {
    const { x, y, state } = this.model;
    const context = this.#context;
    for (const value of ORDER) {
      const look = LOOKS[value];
      context.beginPath();
      for (let i = 0; i < count; i++) {
        const node = this.#seen[i];
        if (state[node] !== value) continue;
        context.roundRect(x[node] - WIDTH / 2 - this.#left, y[node] - HEIGHT / 2 - this.#top, WIDTH, HEIGHT, RADIUS);
      }
      context.fillStyle = this.#colours[look.fill];
      context.strokeStyle = this.#colours[look.line];
      context.lineWidth = look.width;
      context.setLineDash(look.dash);
      context.fill();
      context.stroke();
    }
    context.setLineDash([]);
    context.beginPath();
    for (let i = 0; i < count; i++) {
      const node = this.#seen[i];
      if (state[node] !== CONTEXT) continue;
      const cornerX = x[node] + WIDTH / 2 - this.#left, cornerY = y[node] + HEIGHT / 2 - this.#top;
      context.moveTo(cornerX - 16, cornerY - 4);
      context.lineTo(cornerX - 4, cornerY - 16);
    }
    context.strokeStyle = this.#colours.ink;
    context.lineWidth = 1.8;
    context.stroke();
  }

  /** From very far, thousands of nodes are one pixel, which is painted once for each state. */
  #spots(count, scale, columns, rows) {
    const { x, y, state } = this.model;
    const context = this.#context;
    if (this.#pixels.length < columns * rows) this.#pixels = new Uint8Array(columns * rows);
    this.#pixels.fill(0);
    const crowded = HEIGHT * scale < 1;
    for (const value of ORDER) {
      context.fillStyle = this.#colours[LOOKS[value].far];
      const least = (value === CULPRIT ? SPOT : 1) / scale;
      const width = Math.max(WIDTH, least), height = Math.max(HEIGHT, least);
      for (let i = 0; i < count; i++) {
        const node = this.#seen[i];
        if (state[node] !== value) continue;
        if (crowded) {
          const column = Math.floor((x[node] - this.#left) * scale), row = Math.floor((y[node] - this.#top) * scale);
          if (column >= 0 && column < columns && row >= 0 && row < rows) {
            const pixel = row * columns + column;
            if (this.#pixels[pixel] & (1 << value)) continue;
            this.#pixels[pixel] |= 1 << value;
          }
        }
        context.fillRect(x[node] - width / 2 - this.#left, y[node] - height / 2 - this.#top, width, height);
      }
    }
  }

  #texts(count) {
    const { x, y, number } = this.model;
    const labels = this.#labels;
    labels.begin("op", this.#colours.ink);
    for (let i = 0; i < count; i++) {
      const node = this.#seen[i];
      labels.op(node, x[node] - WIDTH / 2 + 9 - this.#left, y[node] - 2 - this.#top);
    }
    labels.begin("name", this.#colours.dim);
    for (let i = 0; i < count; i++) {
      const node = this.#seen[i];
      labels.name(node, x[node] - WIDTH / 2 + 9 - this.#left, y[node] + 11 - this.#top);
    }
    for (let i = 0; i < count; i++) {
      const node = this.#seen[i];
      if (number[node] === 0) continue;
      labels.badge(number[node], x[node] + WIDTH / 2 - this.#left, y[node] - HEIGHT / 2 - this.#top, this.#colours);
    }
  }

  #types(left, top, right, bottom) {
    const { from, to, labelled, points, start, tensor, left: l, right: r, top: t, bottom: b } = this.model;
    this.#labels.begin("type", this.#colours.dim, this.#colours.bg);
    for (let e = 0; e < from.length; e++) {
      if (!labelled[e] || b[e] < top || t[e] > bottom || r[e] < left || l[e] > right) continue;
      const i = start[e];
      this.#labels.type(
        tensor[e],
        (points[i] + points[i + 2]) / 2 - this.#left,
        (points[i + 1] + points[i + 3]) / 2 - (i + 4 < start[e + 1] ? HEIGHT / 4 : 4) - this.#top,
      );
    }
  }

  #ring(node, scale) {
    const context = this.#context;
    const away = 4, width = Math.max(2.5, 2 / scale);
    context.beginPath();
    context.roundRect(
      this.model.x[node] - WIDTH / 2 - away - this.#left,
      this.model.y[node] - HEIGHT / 2 - away - this.#top,
      WIDTH + 2 * away,
      HEIGHT + 2 * away,
      RADIUS + away,
    );
    context.strokeStyle = this.#colours.link;
    context.lineWidth = width;
    context.stroke();
  }
}
