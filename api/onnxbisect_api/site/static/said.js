// Messages in the reader's language: the page brings them where that is not English.

const MESSAGES = JSON.parse(document.getElementById("messages")?.textContent ?? "{}");

/** `message`, with `values` in place of its `{names}`. */
export function _(message, values = {}) {
  return (MESSAGES[message] ?? message).replace(/\{(\w+)\}/g, (name, key) => values[key] ?? name);
}
