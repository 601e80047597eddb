// Uploads a model as soon as it is chosen, while the rest is filled in. The form then goes without the file.

import { locations } from "./external_data.js";
import { chosen, dropped } from "./picked.js";
import { _ } from "./said.js";
import { upload } from "./upload.js";

const at = (id) => document.getElementById(id);
const drop = at("drop");
const form = drop.closest("form");
const files = at("file");
let going = null; // the upload
let waits = false; // whether the form is to be sent when it is over

at("how").hidden = false;
at("with-data").hidden = true;
files.multiple = true;

function megabytes(count) {
  return (count / 1e6).toFixed(count < 1e7 ? 1 : 0);
}

function show(part) {
  at("upload").hidden = part !== "upload";
  drop.querySelector(".files").hidden = part === "upload";
  at("how").hidden = part === "upload";
}

function over() {
  going = null;
  show("choice");
  files.value = "";
  at("waits").textContent = "";
}

async function take(picking) {
  at("upload-problem").textContent = "";
  at("upload-said").textContent = "";
  try {
    const picked = await picking;
    await demandData(picked);
    await send(picked);
  } catch (problem) {
    over();
    waits = false;
    at("upload-problem").textContent = problem.message;
  }
}

async function demandData({ model, data }) {
  const there = new Set(data.map((each) => each.location));
  const missing = [...(await locations(model))].filter((location) => !there.has(location));
  if (missing.length === 0) return;
  const what = { model: model.name, file: missing[0], more: missing.length - 1 };
  throw new Error(
    missing.length === 1
      ? _("{model} keeps weights in {file}: choose, or drop, all files together.", what)
      : _("{model} keeps weights in {file} and {more} more: choose, or drop, all files together.", what),
  );
}

async function send(picked) {
  going?.cancel();
  at("upload-name").textContent = picked.model.name;
  at("upload-progress").value = 0;
  at("upload-amount").textContent = "";
  show("upload");
  const begun = performance.now();
  const mine = upload(picked, (sent, all) => {
    at("upload-progress").value = all ? sent / all : 0;
    const left = ((performance.now() - begun) / 1000) * (all / sent - 1);
    const soon = sent === all ? _("being checked") : left > 2 ? _("{seconds} s left", { seconds: Math.round(left) }) : "";
    const amount = _("{sent} of {all} MB", { sent: megabytes(sent), all: megabytes(all) });
    at("upload-amount").textContent = [amount, soon].filter(Boolean).join(_(", "));
  });
  going = mine;
  const model = await mine.done;
  if (going !== mine) return; // another one was chosen
  over();
  if (model === null) waits = false;
  else uploaded(model);
}

function uploaded(model) {
  const list = at("model");
  let option = [...list.options].find((each) => each.value === model.sha256);
  if (!option) {
    option = new Option("", model.sha256);
    list.add(option, 1);
  }
  option.textContent = [model.name, `${megabytes(model.size)} MB`, _("uploaded now"), model.sha256.slice(0, 10)].join(" · ");
  option.selected = true;
  list.closest(".field").hidden = false;
  at("upload-said").textContent = _("✓ {model} is uploaded. {size} MB", { model: model.name, size: megabytes(model.size) });
  if (waits) form.requestSubmit();
}

function pick() {
  if (files.files.length) take((async () => chosen(files.files))());
}
files.addEventListener("change", pick);
pick(); // who was faster than this script
at("upload-cancel").addEventListener("click", () => {
  waits = false;
  going?.cancel();
});

// The whole page takes a drop: a browser would leave it for the file.
for (const type of ["dragover", "drop", "dragleave"]) {
  document.addEventListener(type, (event) => {
    if (type !== "dragleave") event.preventDefault();
    drop.classList.toggle("over", type === "dragover");
    if (type === "drop" && event.dataTransfer.items.length) take(dropped(event.dataTransfer));
  });
}

form.addEventListener("submit", (event) => {
  if (going) {
    event.preventDefault();
    waits = true;
    at("waits").textContent = form.dataset.waits;
    return;
  }
  const samples = at("calibration");
  if (!samples?.files.length) form.enctype = "application/x-www-form-urlencoded";
  files.disabled = at("data").disabled = at("submit").disabled = true;
});
window.addEventListener("pageshow", () => {
  waits = false;
  files.disabled = at("data").disabled = at("submit").disabled = false;
});
