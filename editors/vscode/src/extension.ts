/** npuscope in VS Code: starts the language server, shows the predicted time in the status bar, the lab in a panel. */
import * as vscode from "vscode";
import { LanguageClient, type Executable } from "vscode-languageclient/node";
import { LOOKED, OPEN_LAB, labPage, options, status, type Looked } from "./shown";

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const bar = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Right, 100);
  const looks = new Map<string, Looked>();
  const panels = new Map<string, vscode.WebviewPanel>();
  bar.command = "npuscope.lab";

  const refresh = () => {
    const uri = vscode.window.activeTextEditor?.document.uri.toString();
    const said = status(uri ? looks.get(uri) : undefined);
    if (!said) return bar.hide();
    bar.text = said.text;
    bar.tooltip = said.tooltip;
    bar.show();
  };

  const start = async () => {
    await client?.stop();
    const settings = vscode.workspace.getConfiguration("npuscope");
    const server: Executable = { command: settings.get<string>("command", "npuscope"), args: ["lsp"] };
    client = new LanguageClient("npuscope", "npuscope", server, {
      documentSelector: [{ scheme: "file", language: "python" }],
      initializationOptions: options((name) => settings.get(name)),
      // a lens asks the server to open the lab, which would answer with an address that nobody shows
      middleware: {
        executeCommand: (command, given, next) => (command === OPEN_LAB ? openLab(given[0]) : next(command, given)),
      },
    });
    client.onNotification(LOOKED, (said: Looked) => {
      looks.set(vscode.Uri.parse(said.uri).toString(), said);
      refresh();
    });
    try {
      await client.start();
    } catch (error) {
      const words = `npuscope did not start (${error}). Set npuscope.command to its path.`;
      void vscode.window.showErrorMessage(words);
    }
  };

  const openLab = async (uri?: string) => {
    const which = uri ?? vscode.window.activeTextEditor?.document.uri.toString();
    if (!which || !client) return;
    const url: string | null = await client.sendRequest("workspace/executeCommand", {
      command: OPEN_LAB,
      arguments: [which],
    });
    if (!url) return;
    // where the editor's window is on another machine, its address of this machine's port
    const address = new URL(url);
    const origin = (await vscode.env.asExternalUri(vscode.Uri.parse(address.origin))).toString(true);
    const page = labPage(url, `${origin.replace(/\/$/, "")}${address.pathname}`);
    const title = `lab: ${vscode.workspace.asRelativePath(vscode.Uri.parse(which))}`;
    const panel =
      panels.get(which) ??
      vscode.window.createWebviewPanel("npuscope.lab", title, vscode.ViewColumn.Beside, { enableScripts: true });
    panel.reveal(vscode.ViewColumn.Beside);
    if (panel.webview.html !== page) panel.webview.html = page; // a lab that was started again has another address
    if (panels.has(which)) return;
    panel.onDidDispose(() => panels.delete(which));
    panels.set(which, panel);
  };

  context.subscriptions.push(
    bar,
    vscode.commands.registerCommand("npuscope.lab", openLab),
    vscode.commands.registerCommand("npuscope.restart", start),
    vscode.window.onDidChangeActiveTextEditor(refresh),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("npuscope")) void start();
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}
