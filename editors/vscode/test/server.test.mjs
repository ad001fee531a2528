/** The extension's own words, and a real server behind them: `NPUSCOPE` names its command, words parted by spaces. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { pathToFileURL } from "node:url";
import rpc from "vscode-jsonrpc/node.js";
import { LOOKED, OPTIONS, labPage, options, status } from "../out/shown.mjs";

test("the status bar has the time, and turns while findings are looked for", () => {
  const looked = { uri: "file:///a.py", time: "1.03 ms (80%: 0.9 to 1.2)", verdict: "HBM.", whole: false };
  assert.match(status(looked).text, /^npuscope 1\.03 ms .*spin/);
  assert.equal(status({ ...looked, whole: true }).text, "npuscope 1.03 ms (80%: 0.9 to 1.2)");
  assert.equal(status(undefined), undefined);
});

test("every setting of the server is a setting of the extension", () => {
  const { contributes } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  const known = Object.keys(contributes.configuration.properties).map((name) => name.replace("npuscope.", ""));
  assert.deepEqual(known.filter((name) => name !== "command").sort(), [...OPTIONS].sort());
  assert.deepEqual(
    options((name) => (name === "run" ? false : undefined)),
    { run: false },
  );
});

test("only a lab of this machine is shown", () => {
  assert.match(labPage("http://127.0.0.1:8000/token/"), /src="http:\/\/127\.0\.0\.1:8000\/token\/"/);
  assert.throws(() => labPage("https://example.com/"));
  const far = labPage("http://127.0.0.1:8000/token/", "https://far.example/proxy/8000/token/");
  assert.match(
    far,
    /frame-src https:\/\/far\.example; .*\n.*\n<iframe src="https:\/\/far\.example\/proxy\/8000\/token\/"/,
  );
});

test(
  "the server tells the time of a program that is opened",
  { skip: !process.env.NPUSCOPE, timeout: 120000 },
  async () => {
    const [command, ...words] = process.env.NPUSCOPE.split(" ");
    const server = spawn(command, [...words, "lsp"], { stdio: ["pipe", "pipe", "inherit"] });
    const client = rpc.createMessageConnection(
      new rpc.StreamMessageReader(server.stdout),
      new rpc.StreamMessageWriter(server.stdin),
    );
    const looked = new Promise((resolve) => client.onNotification(LOOKED, (said) => said.whole && resolve(said)));
    client.onRequest("workspace/codeLens/refresh", () => null);
    client.onRequest("workspace/inlayHint/refresh", () => null);
    client.listen();
    const file = join(mkdtempSync(join(tmpdir(), "npuscope-vscode-")), "gemm.py");
    writeFileSync(file, readFileSync(new URL("../../../models/basics/gemm.py", import.meta.url)));
    const uri = pathToFileURL(file).href;
    await client.sendRequest("initialize", {
      processId: null,
      rootUri: null,
      capabilities: {},
      initializationOptions: options((name) => ({ seconds: 60, fixes: false })[name]),
    });
    client.sendNotification("initialized", {});
    const text = readFileSync(file, "utf8");
    client.sendNotification("textDocument/didOpen", { textDocument: { uri, languageId: "python", version: 1, text } });
    const said = await looked;
    assert.equal(said.uri, uri);
    assert.match(status(said).text, /^npuscope [\d.]+ .s \(80%: /);
    await client.sendRequest("shutdown");
    client.sendNotification("exit");
    server.kill();
  },
);
