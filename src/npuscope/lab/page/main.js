// Opens the document that the page holds and puts the app together.

import { element } from "./format.js";
import { unpackAll } from "./packed.js";
import { createStore } from "./store.js";
import { Shell } from "./shell.js";

async function main() {
  const held = document.getElementById("document");
  const data = JSON.parse(held?.textContent ?? "{}");
  held?.remove(); // its text is long, and is held twice now
  await unpackAll(data);
  document.title = `${data.title} · npuscope`;
  const store = createStore(data), shell = new Shell(store);
  document.getElementById("app")?.append(shell.box);
  shell.start();
  Object.assign(globalThis, { npuscope: { store, shell } });
  document.documentElement.dataset.ready = "true";
}

main().catch(error => {
  document.getElementById("app")?.append(element("p", { class: "errors" }, `This page could not be drawn: ${error.message}`));
  document.documentElement.dataset.ready = "failed";
  throw error;
});
