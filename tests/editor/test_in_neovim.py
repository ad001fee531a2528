"""The same in a real editor: Debian's neovim, headless, with the lines of docs/howto/editor.md."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pygls")

from tests.editor.test_language_server import GEMM

NVIM = shutil.which("nvim")
HOWTO = Path(__file__).resolve().parents[2] / "docs/howto/editor.md"
STORY = """
local function wait(what, until_true)
  if not vim.wait(60000, until_true, 100) then
    print("no " .. what); vim.cmd("cquit")
  end
end
local function problems()
  local found = {}
  for _, one in ipairs(vim.diagnostic.get(0)) do found[one.code] = one.lnum + 1 end
  return found
end
wait("problems", function() return problems()["short-row"] end)
local said = { problems = problems() }
vim.api.nvim_win_set_cursor(0, { LINE, COLUMN })
local answers = vim.lsp.buf_request_sync(0, "textDocument/hover", vim.lsp.util.make_position_params(), 20000)
for _, one in pairs(answers) do said.hover = one.result.contents.value end
vim.api.nvim_buf_set_lines(0, 0, 0, false, { "# typed above" })
wait("moved problems", function() return problems()["short-row"] == said.problems["short-row"] + 1 end)
vim.cmd("write")
wait("problems after a save", function() return problems()["short-row"] == said.problems["short-row"] + 1 end)
vim.fn.writefile({ vim.json.encode(said) }, "RESULT")
vim.cmd("quitall!")
"""


def neovim_lines() -> str:
    """What the page says to put into init.lua, with this server."""
    page = HOWTO.read_text()
    code = page.split("```lua\n", 1)[1].split("```", 1)[0]
    return code.replace(
        '{ "npuscope", "lsp" }',
        json.dumps([sys.executable, "-m", "npuscope", "lsp"]).replace("[", "{").replace("]", "}"),
    )


@pytest.mark.skipif(NVIM is None, reason="there is no nvim on this machine")
def test_neovim_shows_problems_and_hovers_with_the_lines_of_the_page(tmp_path: Path) -> None:
    file, result, script = tmp_path / "gemm.py", tmp_path / "said.json", tmp_path / "story.lua"
    file.write_text(GEMM)
    lines = GEMM.splitlines()
    line = next(n for n, one in enumerate(lines) if "matmul_acc" in one)
    story = STORY.replace("LINE", str(line + 1)).replace("COLUMN", str(lines[line].index("matmul_acc") + 1))
    script.write_text(
        neovim_lines()
        + "\nvim.cmd('edit ' .. 'FILE')\n".replace("FILE", str(file))
        + story.replace("RESULT", str(result))
    )
    assert NVIM is not None
    command = [NVIM, "--headless", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "filetype on", "-c", f"luafile {script}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path)
    assert result.exists(), ran.stdout + ran.stderr
    said = json.loads(result.read_text())
    assert said["problems"]["short-row"]
    assert "cube" in said["hover"]
    assert file.read_text().startswith("# typed above")
