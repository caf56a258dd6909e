"""A real JupyterLab in a real browser for tests: its server, its menus, and what a notebook shows in it.

Where DIALNB_PICTURES is set, pictures of every notebook are kept in `test-artifacts/jupyterlab`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import shared
from browser import PATIENCE, Browser, find_chromium

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "test-artifacts" / "jupyterlab"

WIDTH, HEIGHT, PAGE = 1280, 900, 3000

READY = "document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"
RUNNING = "[...document.querySelectorAll('.jp-InputPrompt')].some(prompt => prompt.textContent.includes('*'))"
CELLS = "[...document.querySelectorAll('.jp-Notebook .jp-Cell')]"
CODE = "cell => [...cell.querySelectorAll('.jp-CodeCell .cm-line')].map(line => line.textContent).join('\\n')"
DRAWN = f"""new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done({CELLS}.every(cell => {{
  const box = cell.getBoundingClientRect(), away = box.bottom < 0 || box.top > innerHeight;
  return away || cell.checkVisibility({{contentVisibilityAuto: true}});
}})))))"""
SHOWN = """(() => {
  const all = (inside) => [...document.querySelectorAll(`.jp-OutputArea-output${inside}`)];
  const text = (type) => all(`[data-mime-type="application/vnd.jupyter.${type}"]`).map(output => output.textContent);
  const pictures = all(' img, .jp-OutputArea-output svg').filter(picture => picture.checkVisibility());
  return {
    not_executed: [...document.querySelectorAll('.jp-CodeCell')]
      .filter(cell => !/\\d/.test(cell.querySelector('.jp-InputPrompt').textContent)).map(cell => cell.innerText),
    tables: all(' table').filter(table => table.rows.length > 1 && table.clientHeight > 0).length,
    pictures: pictures.length,
    broken: pictures.filter(picture => picture.clientWidth < 100 || picture.naturalWidth === 0).length,
    cut: pictures.filter(picture => picture.clientWidth > picture.closest('.jp-OutputArea').clientWidth).length,
    progress: text('stdout').join(''), errors: [...text('error'), ...text('stderr')],
  };
})()"""


def menu(browser: Browser, name: str, entry: str) -> None:
    """Choose an entry of JupyterLab's menu with the mouse."""
    browser.click(f"[...document.querySelectorAll('.lm-MenuBar-item')].find(item => item.textContent === '{name}')")
    find = f"[...document.querySelectorAll('.lm-Menu-item')].find(item => item.textContent.startsWith('{entry}'))"
    browser.wait(find)
    browser.click(find)


def click_until(browser: Browser, place: str, reached: str, times: int = 1) -> None:
    """Click until a JavaScript expression is true: a page that is being laid out may move away under the mouse."""
    for _ in range(100):
        browser.click(place, times)
        if browser.run(reached):
            return
        time.sleep(0.2)
    raise AssertionError(f"no click reaches {place}")


def replace_word(browser: Browser, word: str, other: str) -> None:
    """Double-click the first place of a word in the code, and type another."""
    place = f"""(() => {{
      const texts = document.createTreeWalker(document.querySelector('.jp-Notebook'), NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {{
        const node = texts.currentNode, at = node.data.indexOf('{word}'), found = document.createRange();
        if (at < 0 || !node.parentElement.closest('.jp-CodeCell .cm-line')) continue;
        found.setStart(node, at), found.setEnd(node, at + {len(word)});
        return found;
      }}
    }})()"""
    click_until(browser, place, f"getSelection().toString() === {json.dumps(word)}", times=2)
    browser.write(other)
    browser.wait(f"document.querySelector('.jp-CodeCell').textContent.includes({json.dumps(other)})")


def page_through(browser: Browser, name: str) -> None:
    """Scroll through a notebook, a long page at a time, so that all of it is laid out; keep pictures if asked to."""
    for old in PICTURES.glob(f"{name}-[0-9]*.png"):
        old.unlink()
    browser.resize(WIDTH, PAGE)
    panel, end, page = "document.querySelector('.jp-WindowedPanel-outer')", False, 0
    while not end:
        browser.run(f"{panel}.scrollTop = {page} * {panel}.clientHeight")
        browser.wait(DRAWN)
        end, page = browser.run(f"{CELLS}.at(-1).getBoundingClientRect().bottom < innerHeight"), page + 1
        if "DIALNB_PICTURES" in os.environ:
            PICTURES.mkdir(parents=True, exist_ok=True)
            browser.screenshot(PICTURES / f"{name}-{page}.png")
    browser.resize(WIDTH, HEIGHT)


def cell_with(code: str) -> str:
    """The first cell of code that holds a piece of it, as JavaScript."""
    return f"{CELLS}.find(cell => ({CODE})(cell).includes({json.dumps(code)}))"


def change_cell(browser: Browser, code: str, change: Callable[[str], str]) -> str:
    """Type other code into a cell, run it, and wait until it is done; gives the cell as JavaScript, by its new code."""
    cell, active = cell_with(code), "document.querySelector('.jp-Cell.jp-mod-active')"
    new = change(browser.run(f"({CODE})({cell})"))
    editor = f"{cell}.querySelector('.cm-content')"
    click_until(browser, editor, f"{editor}.contains(document.activeElement)")
    before = browser.run(f"{active}.querySelector('.jp-InputPrompt').textContent")
    browser.press("a", control=True)
    browser.write(new)
    browser.wait(f"({CODE})({active}) === {json.dumps(new)}", seconds=60)
    menu(browser, "Run", "Run Selected Cell")
    changed = f"{CELLS}.find(cell => ({CODE})(cell) === {json.dumps(new)})"
    prompt = f"{changed}.querySelector('.jp-InputPrompt').textContent"
    browser.wait(f"{prompt} !== {json.dumps(before)} && !{RUNNING}")
    return changed


class Lab(NamedTuple):
    """A running JupyterLab: its address with the token, the folder it works in, and that of a small encoder."""

    address: str
    token: str
    project: Path
    encoder: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab on a free port with settings of its own, in a copy of the project that has no network and whose smoke
    profiles start from a small encoder."""
    if find_spec("jupyterlab") is None:
        pytest.skip("jupyterlab is not installed: pip install -c constraints.txt jupyterlab")
    home, token = tmp_path_factory.mktemp("jupyter"), os.urandom(16).hex()
    project = home / "project"
    shutil.copytree(ROOT / "papers", project / "papers", ignore=shutil.ignore_patterns("results", "trial"))
    shutil.copytree(ROOT / "notebooks", project / "notebooks")
    encoder = shared.small_encoder(tmp_path_factory)
    for path in project.glob("papers/*/profiles.yaml"):
        path.write_text(
            path.read_text("utf-8").replace("\n  smoke:\n", f"\n  smoke:\n    encoder: {encoder}\n", 1), "utf-8"
        )
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
               "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")  # fmt: skip
    settings = {name: str(home / name.lower()) for name in folders} | {"JUPYTER_TOKEN": token, "OMP_NUM_THREADS": "1"}
    settings |= {"DIALNB_PROJECT": str(project), "DIALNB_OFFLINE": "1"}
    settings["DIALNB_CACHE"] = str(shared.smoke_cache(tmp_path_factory))
    news = home / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    options = ["--no-browser", "--ServerApp.port=0", "--ServerApp.ip=127.0.0.1", "--ServerApp.allow_root=True"]
    with (home / "jupyterlab.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=project,
            env=os.environ | settings,
            stdout=log,
            stderr=log,
        )
    card = home / "jupyter_runtime_dir" / f"jpserver-{server.pid}.json"
    deadline = time.monotonic() + PATIENCE
    while not card.is_file() and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert card.is_file(), (home / "jupyterlab.log").read_text()[-3000:]
    time.sleep(0.2)
    yield Lab(json.loads(card.read_text())["url"], token, project, encoder)
    server.terminate()
    server.wait(60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on the PATH: install it (Debian: apt install chromium) to test the notebooks in it")
    opened = Browser(program, tmp_path_factory.mktemp("chromium") / "profile")
    yield opened
    opened.close()


def open_notebook(browser: Browser, lab: Lab, path: str) -> None:
    """Open a notebook of the project, without what an earlier test left open, and wait for its last cell: JupyterLab
    adds them one by one, and what seems to be the end of a page may be the midst of it."""
    browser.problems.clear()
    browser.open(f"{lab.address}lab/tree/{path}?token={lab.token}&reset", WIDTH, height=HEIGHT)
    cells = len(json.loads((lab.project / path).read_text(encoding="utf-8"))["cells"])
    browser.wait(f"{READY} && document.querySelector('.jp-CodeCell .cm-line') && {CELLS}.length === {cells}")


def run_all(browser: Browser) -> None:
    menu(browser, "Run", "Run All Cells")
    browser.wait(RUNNING)
    browser.wait(f"!{RUNNING}")


def look_through(browser: Browser, name: str, *folders: Path) -> dict:
    """Go through a notebook until all figures of its runs are laid out: cells are, once they come into view."""
    pictures = sum(len(list((folder / "figures").glob("*.png"))) for folder in folders)
    for _ in range(60):  # on a busy machine cells take their time
        page_through(browser, name)
        enough = time.monotonic() + 1
        while (shown := browser.run(SHOWN))["pictures"] != pictures and time.monotonic() < enough:
            time.sleep(0.2)
        if shown["pictures"] == pictures:
            break
    assert shown["pictures"] == pictures, f"{shown['pictures']} of {pictures} pictures: {shown}"
    return shown


def assert_all_is_well(browser: Browser, shown: dict) -> None:
    assert shown["errors"] == [] and shown["not_executed"] == []
    assert shown["tables"] >= 1 and shown["pictures"] >= 1
    assert (shown["broken"], shown["cut"]) == (0, 0)
    slow = re.compile(
        r"Plugin \S+ .*(too long|took [\d.]+ms) .*activate|did not appear within"
    )  # a busy machine says so
    problems = [problem for problem in browser.problems if not slow.search(problem)]
    assert not problems, problems
