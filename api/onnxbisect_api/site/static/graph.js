// The model's graph on a page: around a culprit at first, and from there wherever one goes.

import { Data } from "./graph_data.js";
import { ZOOM, gestures } from "./graph_gestures.js";
import { search } from "./graph_search.js";
import { View } from "./graph_view.js";

/** Without a culprit, models up to this size are there whole, and the beginning of others. */
const SMALL = 5000;
const BEGINNING = "0-99";

class Graph {
  constructor(root) {
    const part = (name) => root.querySelector(`.graph-${name}`);
    const { job, target, culprits } = root.dataset;
    const probes = `/jobs/${encodeURIComponent(job)}/probes?target=${encodeURIComponent(target)}`;
    this.root = root;
    this.picker = part("culprit");
    this.data = new Data(job, target);
    this.view = new View(this.data, part, probes);
    this.culprits = JSON.parse(culprits);
    this.states = null;
    this.all = null;
    this.listen(part);
  }

  listen(part) {
    const { view } = this;
    gestures(view.canvas, view.camera, {
      point: (x, y) => view.point(x, y),
      hover: (x, y) => view.hover(x, y),
      walk: (direction) => view.walk(direction),
      open: () => view.open(),
      drop: () => view.drop(),
      all: () => view.fit(),
    });
    search(part("find"), part("found"), {
      nodes: () => this.all ?? view.answer ?? { units: [], ops: [], names: [] },
      more: async () => (this.all = await this.data.whole().catch(() => null)),
      choose: (unit) => {
        view.canvas.focus();
        view.go(unit);
      },
    });
    view.hops.addEventListener("change", () => view.units && view.load(view.units, { mark: view.units !== BEGINNING }));
    this.picker.addEventListener("change", () => this.blame(Number(this.picker.value)));
    part("tools").addEventListener("click", (event) => {
      const wanted = event.target.closest("[data-do]")?.dataset.do;
      if (wanted === "nearer") view.camera.zoom(ZOOM);
      if (wanted === "farther") view.camera.zoom(1 / ZOOM);
      if (wanted === "fit") view.fit();
    });
    document.addEventListener("click", (event) => this.follow(event));
    document.addEventListener("states", (event) => {
      this.learn(event.detail);
      if (view.failed) this.show(); // it was not there yet
    });
  }

  async begin() {
    this.offer();
    const states = this.data.states().then((answer) => this.learn(answer), () => {}); // without, all is unknown
    const addressed = new URLSearchParams(location.search).has("unit");
    if (this.culprits.length === 0 && !addressed) await states;
    await this.show();
  }

  /** What the address asks for, else the first culprit, else where the model begins. */
  async show() {
    const wanted = new URLSearchParams(location.search);
    const unit = wanted.get("unit") ?? "";
    const culprit = this.culprits.find(({ number }) => String(number) === wanted.get("culprit")) ?? this.culprits[0];
    if (/^\d{1,7}$/.test(unit)) {
      await this.view.load(unit);
    } else if (culprit) {
      this.picker.value = String(culprit.number);
      await this.view.load(culprit.units);
    } else {
      if (!this.states || this.states.units <= SMALL) this.view.hops.value = "";
      await this.view.load(BEGINNING, { mark: false });
    }
  }

  learn(states) {
    this.states = states;
    if (states.culprits.length > 0) this.culprits = states.culprits;
    this.offer();
    this.view.learn(states);
  }

  /** The culprits that one can go to. */
  offer() {
    const names = this.culprits.map(({ number, name }) => (name ? `${number} · ${name}` : `${number}`));
    const options = [...this.picker.options].slice(1);
    if (options.length !== names.length || options.some((option, i) => option.textContent !== names[i])) {
      const chosen = this.picker.value;
      this.picker.length = 1;
      names.forEach((name, i) => this.picker.add(new Option(name, this.culprits[i].number)));
      this.picker.value = chosen;
    }
    this.picker.parentElement.hidden = names.length === 0;
  }

  /** Goes to a culprit, and says so in the address. */
  async blame(number) {
    const culprit = this.culprits.find((each) => each.number === number);
    if (!culprit) return;
    this.picker.value = String(number);
    const address = new URL(location.href);
    address.searchParams.set("culprit", number);
    address.searchParams.delete("unit");
    history.replaceState(null, "", address);
    if (this.view.whole) {
      this.view.units = culprit.units;
      this.view.look(culprit.units, { quiet: false });
    } else {
      await this.view.load(culprit.units, { quiet: false });
    }
  }

  /** Anything on the page may lead here. */
  follow(event) {
    const link = event.target.closest?.("[data-graph-culprit], [data-graph-unit]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.root.scrollIntoView({ behavior: still ? "instant" : "smooth", block: "start" });
    this.view.canvas.focus({ preventScroll: true });
    if (link.dataset.graphCulprit) this.blame(Number(link.dataset.graphCulprit));
    else this.view.go(Number(link.dataset.graphUnit));
  }
}

const root = document.getElementById("graph");
if (root) new Graph(root).begin();
