"""The notebooks as a person uses them: a real JupyterLab in a real browser, and what its kernel says while one types.

The pictures of every notebook after its run are kept in `test-artifacts/jupyterlab`.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from browser import Browser, find_chromium
from jupyter_client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "test-artifacts" / "jupyterlab"
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
OVERRIDES = {
    "matrix": '{"workers": 1, "methods": ["DSE", "SimCSE-unsup"], "tasks": ["Intents", "Similarity", "Retrieval"]}'
}
"""What is typed into the first cell besides the profile, where that alone takes minutes."""

WIDTH, HEIGHT, PAGE = 1280, 900, 3000

READY = "document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"
RUNNING = "[...document.querySelectorAll('.jp-InputPrompt')].some(prompt => prompt.textContent.includes('*'))"
CELLS = "[...document.querySelectorAll('.jp-Notebook .jp-Cell')]"
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
    for _ in range(50):  # a page that is still being laid out may move away under the mouse
        browser.click(place, times=2)
        if browser.run("getSelection().toString()") == word:
            break
        time.sleep(0.2)
    browser.write(other)
    browser.wait(f"document.querySelector('.jp-CodeCell').textContent.includes({json.dumps(other)})")


def photograph(browser: Browser, name: str) -> None:
    """Scroll through a notebook, a long page at a time, and keep a picture of each."""
    browser.resize(WIDTH, PAGE)
    panel, end, page = "document.querySelector('.jp-WindowedPanel-outer')", False, 0
    while not end:
        browser.run(f"{panel}.scrollTop = {page} * {panel}.clientHeight")
        browser.wait(DRAWN)
        end, page = browser.run(f"{CELLS}.at(-1).getBoundingClientRect().bottom < innerHeight"), page + 1
        browser.screenshot(PICTURES / f"{name}-{page}.png")
    browser.resize(WIDTH, HEIGHT)


class Lab(NamedTuple):
    """A running JupyterLab: its address with the token, and the folder it works in."""

    address: str
    token: str
    project: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab on a free port with settings of its own, in a copy of the project that has no network."""
    if find_spec("jupyterlab") is None:
        pytest.skip("jupyterlab is not installed: pip install -c constraints.txt jupyterlab")
    home, token = tmp_path_factory.mktemp("jupyter"), os.urandom(16).hex()
    project = home / "project"
    shutil.copytree(ROOT / "papers", project / "papers", ignore=shutil.ignore_patterns("results"))
    shutil.copytree(ROOT / "notebooks", project / "notebooks")
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
               "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")  # fmt: skip
    settings = {name: str(home / name.lower()) for name in folders} | {"JUPYTER_TOKEN": token, "OMP_NUM_THREADS": "1"}
    settings |= {"DIALNB_PROJECT": str(project), "DIALNB_CACHE": str(home / "cache"), "DIALNB_OFFLINE": "1"}
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
    deadline = time.monotonic() + 900
    while not card.is_file() and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert card.is_file(), (home / "jupyterlab.log").read_text()[-3000:]
    time.sleep(0.2)
    yield Lab(json.loads(card.read_text())["url"], token, project)
    server.terminate()
    server.wait(60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on the PATH: install it (Debian: apt install chromium) to test the notebooks in it")
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    opened = Browser(program, tmp_path_factory.mktemp("chromium") / "profile")
    yield opened
    opened.close()


def look_around(browser: Browser) -> None:
    """On the tour: a point of the map says its utterance, and the menu of the map and the panels answer."""
    place = """(() => {
      const all = [...document.querySelectorAll('.js-plotly-plot .point')], one = all.find(e => e.checkVisibility());
      one.scrollIntoView({block: 'center'});
      const box = one.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    })()"""
    said = "document.querySelector('.hoverlayer').textContent.includes('nearest is right for:')"
    for shift in (-9, -6, -3, 0) * 10:  # a page that is still being laid out may move away under the mouse
        x, y = browser.run(place)
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + shift, y=y)
        time.sleep(0.2)
        if browser.run(said):
            break
    browser.wait(said)
    browser.click("document.querySelector('.js-plotly-plot .updatemenu-header')")
    entry = "[...document.querySelectorAll('.updatemenu-dropdown-button')].find(e => e.textContent.includes('corpus'))"
    browser.wait(entry)
    browser.click(entry)
    browser.wait("document.querySelector('.js-plotly-plot .legend').textContent.includes('BANKING77')")
    browser.run("[...document.querySelectorAll('.widget-textarea textarea')].at(-1).select()")
    browser.write("yes\na line of my own")
    browser.run("document.activeElement.blur()")
    browser.wait("[...document.querySelectorAll('td, th')].some(e => e.textContent.includes('a line of my own'))")


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_all_cells_of_a_notebook_run_in_jupyterlab_and_show_what_they_should(browser, lab, name):
    browser.problems.clear()
    browser.open(f"{lab.address}lab/tree/notebooks/{name}.ipynb?token={lab.token}&reset", WIDTH, height=HEIGHT)
    browser.wait(f"{READY} && document.querySelector('.jp-CodeCell .cm-line')")
    paper = (lab.project / "papers" / name).is_dir()
    replace_word(browser, "quick", "smoke")
    if name in OVERRIDES:
        replace_word(browser, "overrides", f"overrides = {OVERRIDES[name]}  #")
    menu(browser, "Run", "Run All Cells")
    browser.wait(RUNNING)
    browser.wait(f"!{RUNNING}")
    photograph(browser, name)
    shown = browser.run(SHOWN)
    if name == "00_tour":
        look_around(browser)
    menu(browser, "Kernel", "Shut Down Kernel")
    assert shown["errors"] == [] and shown["not_executed"] == []
    assert shown["tables"] >= 1 and shown["pictures"] >= 1
    assert (shown["broken"], shown["cut"]) == (0, 0)
    slow = re.compile(r"Plugin \S+ .*(too long|took [\d.]+ms) .*activate")  # says a busy machine, and nothing else
    assert [problem for problem in browser.problems if not slow.search(problem)] == []
    if paper:
        (folder,) = (lab.project / "runs").glob(f"{name}-smoke-seed1*")
        assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["status"] == "done"
        assert len(pd.read_csv(folder / "results.csv"))
        assert shown["pictures"] == len(list((folder / "figures").glob("*.png")))
        assert shown["tables"] >= len(list((folder / "tables").glob("*.csv")))
        assert "stage train" in shown["progress"] and "done in" in shown["progress"]


# --- while one types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_kernel_that_a_notebook_names_is_installed(name):
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    kernel = KernelSpecManager().get_kernel_spec(notebook["metadata"]["kernelspec"]["name"])
    assert kernel.language == notebook["metadata"]["language_info"]["name"] and "ipykernel_launcher" in kernel.argv


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Iterator[BlockingKernelClient]:
    """A kernel in which the first cells of a notebook have run."""
    out = tmp_path_factory.mktemp("kernel") / "run"
    manager, client = start_new_kernel(kernel_name="python3")
    cells = "import dialnb\nfrom dialnb import plots\nfrom dialnb.runs import start\nfrom dialnb.studies import dse\n"
    done = client.execute(cells + f"run = start('dse', profile='smoke', out={str(out)!r})", reply=True, timeout=900)
    assert done["content"]["status"] == "ok", done["content"]
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    {
        "dialnb.": {"load", "load_encoder", "Encoder", "plots"},
        "run.": {"settings", "train", "evaluate", "stage", "add", "results", "table", "figure", "claims", "finish"},
        "run.settings.": {"encoder", "seed", "learning_rate"},
        "run.settings['lea": {"learning_rate"},
        "dse.": {"model", "count_data"},
        "plots.": {"training_curves", "uniformity_alignment"},
        "start('dse', prof": {"profile="},
    }.items(),
)
def test_a_cell_completes_to_the_names_that_one_looks_for(kernel, typed, offered):
    found = kernel.complete(typed, len(typed), reply=True, timeout=900)["content"]["matches"]
    assert offered <= set(found) and "import_module" not in found


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "run": "What the cells of a notebook talk to",
        "run.table": "The published table with ours beside it",
        "run.settings": "The values of one run",
        "start": "Check the parameters and open the run's folder",
        "dialnb": "five papers on dialogue representation learning",
        "dialnb.load": "The records of a dataset",
        "dialnb.load_encoder": 'a local folder, a bundled name ("mini"), or a Hugging Face hub id',
        "dse.model": "A model as DSE's notebook trains it in a profile",
        "plots.training_curves": "``loss`` over ``step``",
    }.items(),
)
def test_asking_for_help_shows_the_signature_and_what_a_thing_does(kernel, name, words):
    shown = kernel.inspect(name, len(name), reply=True, timeout=900)["content"]["data"]["text/plain"]
    assert words in re.sub(r"\x1b\[[0-9;]*m", "", shown)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_everything_that_a_notebook_calls_explains_itself(name):
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    nodes = list(ast.walk(ast.parse(code)))
    imports = [(node.module, each) for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    places = {each.asname or each.name: f"{module}.{each.name}" for module, each in imports}
    places["run"] = "dialnb.runs.Run"
    calls = [ast.unparse(node.func).split(".") for node in nodes if isinstance(node, ast.Call)]
    ours = {".".join([places[first], *rest]) for first, *rest in calls if first in places}
    assert len(ours) > 2
    assert [call for call in sorted(ours) if not inspect.getdoc(pkgutil.resolve_name(call))] == []
