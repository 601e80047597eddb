// Sends a model to the service: the promise's value is what the service knows of it then. `fetch` tells no progress of
// what it sends, so this is an XMLHttpRequest.

import { _ } from "./said.js";

export function upload({ model, data }, progressed) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.upload.addEventListener("progress", (event) => progressed(event.loaded, event.total));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(request.response);
      else reject(new Error(request.response?.detail ?? _("The service answered with status {status}.", { status: request.status })));
    });
    request.addEventListener("error", () => reject(new Error(_("The connection broke off: try it again."))));
    request.addEventListener("abort", () => resolve(null));
  });
  request.responseType = "json";
  if (data.length === 0) {
    request.open("PUT", `/v1/models?name=${encodeURIComponent(model.name)}`);
    request.send(model);
  } else {
    const form = new FormData();
    form.append("model", model, model.name);
    for (const { location, file } of data) form.append("data", file, location);
    request.open("POST", "/v1/models");
    request.send(form);
  }
  return { done, cancel: () => request.abort() };
}
