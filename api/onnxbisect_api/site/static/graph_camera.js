// Where one looks, and from how far.

const NEAREST = 2.5;
const GLIDE = 180; // ms
const MARGIN = 24; // pixels of the screen

export class Camera {
  #moved;
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #gliding = 0;
  #bounds = { left: 0, right: 1, top: 0, bottom: 1 };

  /** `moved` is called after every change. */
  constructor(moved) {
    this.#moved = moved;
    this.x = 0;
    this.y = 0;
    this.scale = 1;
    this.width = 1;
    this.height = 1;
  }

  /** What there is to see: the furthest view shows all of it, and none looks beyond it. */
  bound(box) {
    this.#bounds = box;
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
  }

  /** The scale at which a box fills the view. */
  filling(box) {
    return Math.min(
      (this.width - 2 * MARGIN) / (box.right - box.left),
      (this.height - 2 * MARGIN) / (box.bottom - box.top),
    );
  }

  world(px, py) {
    return [this.x + (px - this.width / 2) / this.scale, this.y + (py - this.height / 2) / this.scale];
  }

  screen(x, y) {
    return [(x - this.x) * this.scale + this.width / 2, (y - this.y) * this.scale + this.height / 2];
  }

  /** By pixels of the screen. */
  pan(dx, dy) {
    this.#stop();
    this.#look(this.x - dx / this.scale, this.y - dy / this.scale, this.scale);
  }

  /** What is at this pixel stays there. */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    this.#stop();
    const [x, y] = this.world(px, py);
    const scale = this.#possible(this.scale * factor);
    this.#look(x - (px - this.width / 2) / scale, y - (py - this.height / 2) / scale, scale);
  }

  fit(box, nearest = 1, how = {}) {
    this.go((box.left + box.right) / 2, (box.top + box.bottom) / 2, Math.min(this.filling(box), nearest), how);
  }

  /** Glides there where that is near; where it is far, or motion is not wanted, is there at once. */
  go(x, y, scale = this.scale, { glide = true } = {}) {
    this.#stop();
    const from = { x: this.x, y: this.y, scale: this.scale };
    const to = this.#possible(scale);
    const far = Math.max(Math.abs(x - from.x) / this.width, Math.abs(y - from.y) / this.height) * Math.min(to, from.scale);
    if (!glide || this.#still.matches || far > 2) {
      this.#look(x, y, to);
      return;
    }
    const began = performance.now();
    const step = (now) => {
      const part = Math.min(1, Math.max(0, now - began) / GLIDE);
      const eased = 1 - (1 - part) ** 3;
      this.#look(
        from.x + (x - from.x) * eased,
        from.y + (y - from.y) * eased,
        from.scale * (to / from.scale) ** eased,
      );
      if (part < 1) this.#gliding = requestAnimationFrame(step);
    };
    this.#gliding = requestAnimationFrame(step);
  }

  /** Only as far as is needed for a node to be seen whole. */
  reveal(box) {
    const [left, top] = this.screen(box.left, box.top);
    const [right, bottom] = this.screen(box.right, box.bottom);
    const over = (low, high, size) =>
      low < MARGIN ? low - MARGIN : high > size - MARGIN ? high - size + MARGIN : 0;
    const dx = over(left, right, this.width), dy = over(top, bottom, this.height);
    if (dx !== 0 || dy !== 0) this.go(this.x + dx / this.scale, this.y + dy / this.scale);
  }

  #possible(scale) {
    return Math.min(NEAREST, Math.max(Math.min(this.filling(this.#bounds), 0.5), scale));
  }

  #look(x, y, scale) {
    const { left, right, top, bottom } = this.#bounds;
    this.x = Math.min(right, Math.max(left, x));
    this.y = Math.min(bottom, Math.max(top, y));
    this.scale = scale;
    this.#moved();
  }

  #stop() {
    cancelAnimationFrame(this.#gliding);
  }
}
