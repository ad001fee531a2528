/** What the extension shows and starts, without anything of VS Code's: so that it can be tested beside the server. */

/** The server's own notification after a save: `time` is one line, `whole` when findings are known, too. */
export interface Looked {
  uri: string;
  time: string;
  verdict: string;
  whole: boolean;
}

export const LOOKED = "npuscope/looked";
export const OPEN_LAB = "npuscope.openLab";

/** The settings that the server takes as its initializationOptions. */
export const OPTIONS = ["device", "arguments", "seconds", "run", "fixes"] as const;

export function options(get: (name: string) => unknown): Record<string, unknown> {
  const given = OPTIONS.map((name) => [name, get(name)] as const);
  return Object.fromEntries(given.filter(([, value]) => value !== undefined && value !== null));
}

/** What the status bar says of the program in front; nothing where no program is. */
export function status(looked: Looked | undefined): { text: string; tooltip: string } | undefined {
  if (!looked) return undefined;
  const busy = looked.whole ? "" : " $(sync~spin)";
  return { text: `npuscope ${looked.time}${busy}`, tooltip: looked.verdict || "Open the lab" };
}

/** A page that shows the lab and nothing else. `url` is as the server says it, `outside` as the editor's window sees it. */
export function labPage(url: string, outside: string = url): string {
  const { protocol, hostname } = new URL(url);
  if (protocol !== "http:" || hostname !== "127.0.0.1") throw new Error(`not a lab of this machine: ${url}`);
  const address = new URL(outside);
  const policy = `default-src 'none'; frame-src ${address.origin}; style-src 'unsafe-inline'`;
  return `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}">
<style>html,body,iframe{margin:0;padding:0;border:0;width:100%;height:100vh;overflow:hidden}</style>
<iframe src="${address.href}" title="npuscope lab"></iframe>`;
}
