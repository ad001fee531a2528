// Opens the document that the page holds and puts the app together.

import { element } from "./format.js";
import { unpackAll } from "./packed.js";
import { createStore } from "./store.js";
import { linkSays } from "./link.js";
import { Shell } from "./shell.js";
import { Live } from "./live.js";
import { panel as source } from "./panels/source.js";

async function main() {
  const held = document.getElementById("document");
  const data = JSON.parse(held?.textContent ?? "{}");
  held?.remove(); // its text is long, and is held twice now
  await unpackAll(data);
  document.title = `${data.title} · npuscope`;
  const store = createStore(data);
  if (data.live && data.runs.length === 0) {
    waitFor(store);
    return;
  }
  const shell = new Shell(store);
  document.getElementById("app")?.append(shell.box);
  shell.start();
  Object.assign(globalThis, { npuscope: { store, shell } });
  if (data.live) {
    const { hash } = location,
      wanted = new URLSearchParams(hash.slice(1)).get("run");
    const live = new Live(store, shell.status, () => {
      shell.drawHead();
      shell.diagnosis.draw();
    });
    live.start();
    if (wanted !== null && store.state.versions.some((one) => one.id === wanted && one.has_run))
      await live.take(wanted, true);
    if (linkSays(hash, store.state).rank) await shell.follow(hash); // a rank that the server has to draw
  }
  document.documentElement.dataset.ready = "true";
}

/** A program has not run yet: says so until it has. @param {import("./types").Store} store */
function waitFor(store) {
  const status = element("div.status", { role: "status", "aria-live": "polite" });
  const text = element("div");
  document.getElementById("app")?.append(element("div.waiting", element("h1", store.state.title), status, text));
  /** @type {any} */
  let shown = null;
  store.on(["live"], (state) => {
    // why it did not, at its line
    if (!state.live?.broken) {
      text.replaceChildren();
      shown = null;
    } else if (shown) shown.update(state);
    else shown = source.mount(text, store);
  });
  new Live(store, status, () => {}).start();
  Object.assign(globalThis, { npuscope: { store } });
  document.documentElement.dataset.ready = "true";
}

main().catch((error) => {
  document.getElementById("app")?.append(element("p.errors", `This page could not be drawn: ${error.message}`));
  document.documentElement.dataset.ready = "failed";
  throw error;
});
