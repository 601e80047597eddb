// Mouse, fingers and keys on the canvas, as movements of the camera and wishes.

const STEP = 80; // pixels that an arrow key moves
export const ZOOM = 1.4;
const SLOP = 4; // pixels that a click may move
const LATCH = 400; // ms

/** `wish` has what is wanted of nodes: `point(x, y)`, `hover(x, y)`, `walk(direction)`, `open()`, `drop()`, `all()`. */
export function gestures(canvas, camera, wish) {
  const fingers = new Map();
  let moved = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 0) moved = 0;
    fingers.set(event.pointerId, at(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") wish.hover(x, y);
      return;
    }
    const [dx, dy] = [x - before[0], y - before[1]];
    moved += Math.hypot(dx, dy);
    if (fingers.size === 1) {
      if (moved > SLOP) camera.pan(dx, dy);
    } else {
      pinch(event.pointerId, before, [x, y]);
    }
    fingers.set(event.pointerId, [x, y]);
  });
  const lift = (event) => {
    const was = fingers.delete(event.pointerId);
    if (was && fingers.size === 0 && moved <= SLOP && event.type === "pointerup") wish.point(...at(event));
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);

  /** What lies between two fingers stays between them. */
  function pinch(id, before, now) {
    const other = [...fingers].find(([each]) => each !== id)[1];
    const between = (finger) => [(finger[0] + other[0]) / 2, (finger[1] + other[1]) / 2];
    const apart = (finger) => Math.max(10, Math.hypot(finger[0] - other[0], finger[1] - other[1]));
    const [from, to] = [between(before), between(now)];
    camera.pan(to[0] - from[0], to[1] - from[1]);
    camera.zoom(apart(now) / apart(before), ...to);
  }

  // Only a wheel movement that begins over the graph zooms it: scrolling the page past the graph keeps scrolling.
  let passing = -Infinity;
  addEventListener("wheel", (event) => {
    if (event.target !== canvas) passing = event.timeStamp;
  }, { passive: true });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && event.timeStamp - passing < LATCH) {
      passing = event.timeStamp;
      return;
    }
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    // a trackpad's pinch comes as a wheel with Ctrl, in small steps
    camera.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)), ...at(event));
  }, { passive: false });

  const keys = {
    ArrowLeft: (walk) => (walk ? wish.walk("left") : camera.pan(STEP, 0)),
    ArrowRight: (walk) => (walk ? wish.walk("right") : camera.pan(-STEP, 0)),
    ArrowUp: (walk) => (walk ? wish.walk("up") : camera.pan(0, STEP)),
    ArrowDown: (walk) => (walk ? wish.walk("down") : camera.pan(0, -STEP)),
    "+": () => camera.zoom(ZOOM),
    "=": () => camera.zoom(ZOOM),
    "-": () => camera.zoom(1 / ZOOM),
    0: () => wish.all(),
    Enter: () => wish.open(),
    Escape: () => wish.drop(),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(event.shiftKey);
  });
}
