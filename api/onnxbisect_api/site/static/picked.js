// What somebody chose or dropped, as a model and the files of its external data, each with its location beside the model.
// Throws an Error with a sentence.

import { _ } from "./said.js";

const MODEL = /\.onnx$/i;

// From an input, or from a drop; folders are looked through.
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (entries.length === 0) return arranged([...transfer.files].map((file) => ({ path: file.name, file })));
  const found = await Promise.all(entries.map(below));
  return arranged(found.flat());
}

export function chosen(files) {
  return arranged([...files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
}

async function below(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ path: entry.fullPath.replace(/^\//, ""), file }];
  }
  const reader = entry.createReader();
  const found = [];
  // A reader hands out a hundred at a time, until there are none.
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return found;
    for (const each of some) found.push(...(await below(each)));
  }
}

function arranged(found) {
  if (found.length === 0) throw new Error(_("There was no file in that."));
  const models = found.length === 1 ? found : found.filter((each) => MODEL.test(each.path));
  if (models.length === 0) throw new Error(_("None of these files is named *.onnx."));
  if (models.length > 1) {
    const [first, second] = models.map((each) => each.path);
    throw new Error(_("One model at a time: {first} and {second} are two.", { first, second }));
  }
  const [model] = models;
  const folder = model.path.slice(0, model.path.lastIndexOf("/") + 1);
  const data = found.filter((each) => each !== model && each.path.startsWith(folder));
  return { model: model.file, data: data.map((each) => ({ location: each.path.slice(folder.length), file: each.file })) };
}
