// What each state looks like on the canvas. Colours are names of variables of the page's style sheet.

import { CULPRIT, STATES, TERMINAL } from "./graph_model.js";

/** How each state looks from near, and its one colour from afar. States differ in their border, too. */
export const LOOKS = [
  { fill: "pass-soft", line: "pass", width: 1.4, dash: [], far: "pass" },
  { fill: "bad-soft", line: "bad", width: 3.5, dash: [], far: "bad" },
  { fill: "card", line: "bad", width: 2, dash: [7, 4], far: "bad" },
  { fill: "context-soft", line: "context", width: 1.8, dash: [], far: "context" },
  { fill: "card", line: "control", width: 1.4, dash: [3, 3], far: "unknown" },
  { fill: "bg", line: "dim", width: 1.4, dash: [9, 4], far: "dim" },
];
export const CONTEXT = STATES.indexOf("needs_context");
/** What must be seen is drawn above what need not. */
export const ORDER = [TERMINAL, STATES.indexOf("unknown"), STATES.indexOf("pass"), CONTEXT, STATES.indexOf("suspected"), CULPRIT];
export const COLOURS = [...new Set(LOOKS.flatMap(({ fill, line, far }) => [fill, line, far])), "ink", "link", "on-bad"];
