// What the service knows of the model's graph, asked for once.

import { _ } from "./said.js";

export class Data {
  #job;
  #target;
  #whole = null;
  #facts = new Map();

  constructor(job, target) {
    this.#job = `/v1/jobs/${encodeURIComponent(job)}`;
    this.#target = `target=${encodeURIComponent(target)}`;
  }

  /** What is around these units, or all of the model where `hops` is null. */
  part(units, hops) {
    return hops === null ? this.whole() : asked(`${this.#job}/graph?${this.#target}&around=${units}&hops=${hops}`);
  }

  whole() {
    this.#whole ??= asked(`${this.#job}/graph?${this.#target}`).catch((problem) => {
      this.#whole = null;
      throw problem;
    });
    return this.#whole;
  }

  states() {
    return asked(`${this.#job}/states?${this.#target}`);
  }

  /** What is known already, at once; else null. */
  known(unit) {
    return this.#facts.get(unit) ?? null;
  }

  async facts(unit) {
    if (!this.#facts.has(unit)) this.#facts.set(unit, await asked(`${this.#job}/graph/${unit}?${this.#target}`));
    return this.#facts.get(unit);
  }
}

async function asked(address) {
  const answer = await fetch(address);
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw new Error(problem.detail ?? problem.title ?? _("The service answered {status}.", { status: answer.status }));
}
