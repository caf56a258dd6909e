"""The notebooks in their smallest profile: headless, in a real JupyterLab in a real browser, and while one types.

Every notebook of a paper runs once, headless and from an encoder of one layer; its tables, figures and claims are
looked at, and JupyterLab shows what came out. DSE's notebook and the tour are run and changed in JupyterLab itself.
The pictures of every notebook are kept in `test-artifacts/jupyterlab`.
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
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from browser import PATIENCE, Browser, find_chromium
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel

from dialnb.claims.papers import load_paper
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.training.pretrain import new_transformer

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "test-artifacts" / "jupyterlab"
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))

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


SHAPE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


class Expected(NamedTuple):
    """What the smoke run of a notebook shows: tables and figures that are left out, and claims that are judged."""

    tables_left_out: set[str]
    figures: set[str]
    judged: set[str]


PAPERS = {
    "dse": Expected({"T1"}, {"F1", "F2", "geometry", "training"},
                    {"raw-intents", "out-of-scope", "utterance-selection", "dialogue-selection"}),
    "dialoguecse": Expected(set(), {"F1", "F2", "geometry", "matching", "spaces", "training"},
                            {"i2-over-siamese-mdc", "over-self-supervised-mdc", "mean-over-cls"}),
    "ums": Expected(set(), {"F1", "F2", "F3", "F4", "geometry", "terms", "training"},
                    {"related-not-next", "baselines-collapse", "original-gain", "adversarial-gain", "larger-gain-bert",
                     "smaller-drop", "fewer-fooled", "corpora"}),
    "tadse": Expected(set(), {"F1", "F2", "F3", "F4", "F6", "F8", "compression", "training"},
                      {"over-simcse", "template-loss", "pair-loss", "alignment-layer", "compression", "clusters",
                       "compression-alignment", "every-k", "growth", "toy", "count-snips"}),
    "wmdc": Expected(set(), {"F1", "F2", "frequent-tsne", "geometry", "training"},
                     {"imbalance", "actions", "inference", "retrieval"}),
}  # fmt: skip


@pytest.fixture(scope="module", params=PAPERS)
def done(request, tmp_path_factory) -> tuple[str, Path]:
    """A paper, and the run folder of `dialnb run SLUG --profile smoke`."""
    slug = request.param
    folder = tmp_path_factory.mktemp(slug)
    pieces = load_encoder("mini", device="cpu").tokenizer
    Encoder(new_transformer("bert", SHAPE, len(pieces)), pieces, name="tiny").save(folder / "tiny")
    command = [sys.executable, "-m", "dialnb", "run", slug, "--profile", "smoke", "--out", str(folder / "runs")]
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DIALNB_CACHE": str(folder / "cache")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIALNB_")}
    ran = subprocess.run(
        [*command, "--encoder", str(folder / "tiny")],
        env=kept | settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return slug, next((folder / "runs").iterdir())


def test_what_the_whole_training_would_take_is_projected_from_the_steps_that_ran(done):
    times = pd.read_csv(done[1] / "tables" / "training-times.csv")
    assert len(times) and (times["printed steps"] >= times["steps"]).all() and (times["projected hours"] >= 0).all()


def test_every_printed_table_is_written_with_a_reason_for_each_row_that_did_not_run(done):
    slug, folder = done
    shown = set(load_paper(slug).tables) - PAPERS[slug].tables_left_out
    assert {path.stem for path in (folder / "tables").glob("*.csv")} == {*shown, "training-times"}
    for table in shown:
        rows = pd.read_csv(folder / "tables" / f"{table}.csv")
        missing = rows[rows["status"] == "not run"]
        unsaid = missing[missing["note"] == "not part of this run"]
        assert unsaid.empty, f"{table}: {unsaid[['model', 'column']].to_dict('records')[:3]}"


def test_no_claim_is_left_undecided_for_rows_that_cannot_be_told_apart(done):
    slug, folder = done
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    assert not [claim["id"] for claim in claims if "one row per seed" in claim["reason"]]
    measured = {claim["id"] for claim in claims if claim["verdict"] != "not run" or claim["qualifier"]}
    assert PAPERS[slug].judged <= measured  # so small a run may be below its floors, and then says so


def test_figures_come_with_the_data_they_were_drawn_from(done):
    slug, folder = done
    names = {path.stem for path in (folder / "figures").glob("*.png")}
    assert names == PAPERS[slug].figures == {path.stem for path in (folder / "figures").glob("*.csv")}


def test_the_executed_notebook_shows_its_figures(done):
    slug, folder = done
    cells = json.loads((folder / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = sum("image/png" in out.get("data", {}) for cell in cells for out in cell.get("outputs", ()))
    assert shown == len(PAPERS[slug].figures)


def test_projections_carry_coordinates_and_how_far_they_can_be_trusted(done):
    slug, folder = done
    name, column, parts = {
        "dse": ("F1", "part", {"intents", "questions and answers"}),
        "dialoguecse": ("spaces", "part", {"SGD"}),
        "ums": ("F4", "task", {"insertion", "deletion", "search"}),
        "tadse": ("F4", "model", {"SimCSE", "TaDSE", "TaDSE, compressed 0.5"}),
        "wmdc": ("frequent-tsne", "label", {"most frequent", "frequent", "seen once"}),
    }[slug]
    plane = pd.read_csv(folder / "figures" / f"{name}.csv")
    assert set(plane[column]) == parts and plane["preservation"].between(0, 1).all()


def test_figures_that_are_not_drawn_say_why(done):
    slug, folder = done
    reasons = {entry["table"]: entry["reason"] for entry in json.loads((folder / "run.json").read_text())["not_run"]}
    absent = {"dse": ("F3", "F1-umap"), "dialoguecse": ("F3", "T3", "T4", "X-sides", "spaces-umap"),
              "ums": ("epochs", "F4-umap"), "tadse": ("F7", "F4-umap"),
              "wmdc": ("F3", "F4", "F5", "frequent-umap")}[slug]  # fmt: skip
    assert all("smoke" in reasons[name] for name in absent)
    assert slug != "dse" or ("SICK" in reasons["X1"] and "ANLI" in reasons["X-anli"])


# --- in JupyterLab ----------------------------------------------------------------------------------------------------


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


def cell_with(code: str) -> str:
    """The first cell of code that holds a piece of it, as JavaScript."""
    return f"{CELLS}.find(cell => ({CODE})(cell).includes({json.dumps(code)}))"


def change_cell(browser: Browser, code: str, change: Callable[[str], str]) -> None:
    """Type other code into a cell, run it, and wait until it is done."""
    cell = cell_with(code)
    old = browser.run(f"({CODE})({cell})")
    browser.click(f"{cell}.querySelector('.cm-content')")
    browser.press("a", control=True)
    browser.write(change(old))
    menu(browser, "Run", "Run Selected Cell")
    browser.wait(f"!{RUNNING}")


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
    deadline = time.monotonic() + PATIENCE
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


def open_notebook(browser: Browser, lab: Lab, path: str) -> None:
    """Open a notebook of the project, without what an earlier test left open."""
    browser.problems.clear()
    browser.open(f"{lab.address}lab/tree/{path}?token={lab.token}&reset", WIDTH, height=HEIGHT)
    browser.wait(f"{READY} && document.querySelector('.jp-CodeCell .cm-line')")


def run_all(browser: Browser) -> None:
    menu(browser, "Run", "Run All Cells")
    browser.wait(RUNNING)
    browser.wait(f"!{RUNNING}")


def look_through(browser: Browser, name: str, folder: Path) -> dict:
    """Photograph a notebook until all figures of its run are laid out: cells are, once they come into view."""
    pictures = len(list((folder / "figures").glob("*.png")))
    for _ in range(6):
        photograph(browser, name)
        shown = browser.run(SHOWN)
        if shown["pictures"] == pictures:
            break
        time.sleep(5)
    assert shown["pictures"] == pictures
    return shown


def assert_all_is_well(browser: Browser, shown: dict) -> None:
    assert shown["errors"] == [] and shown["not_executed"] == []
    assert shown["tables"] >= 1 and shown["pictures"] >= 1
    assert (shown["broken"], shown["cut"]) == (0, 0)
    slow = re.compile(
        r"Plugin \S+ .*(too long|took [\d.]+ms) .*activate|did not appear within"
    )  # a busy machine says so
    assert [problem for problem in browser.problems if not slow.search(problem)] == []


@pytest.mark.slow
def test_jupyterlab_shows_what_came_out(done, browser, lab):
    slug, folder = done
    (lab.project / "executed").mkdir(exist_ok=True)
    shutil.copy(folder / "notebook.ipynb", lab.project / "executed" / f"{slug}.ipynb")
    open_notebook(browser, lab, f"executed/{slug}.ipynb")
    shown = look_through(browser, slug, folder)
    menu(browser, "Kernel", "Shut Down Kernel")
    assert_all_is_well(browser, shown)
    assert shown["tables"] >= len(list((folder / "tables").glob("*.csv")))


@pytest.mark.slow
def test_the_tour_runs_in_jupyterlab_and_answers(browser, lab):
    open_notebook(browser, lab, "notebooks/00_tour.ipynb")
    replace_word(browser, "quick", "smoke")
    run_all(browser)
    photograph(browser, "00_tour")
    shown = browser.run(SHOWN)
    look_around(browser)
    menu(browser, "Kernel", "Shut Down Kernel")
    assert_all_is_well(browser, shown)


COSINE = "row => Number(row.querySelectorAll('td')[2].textContent)"
OWN_MODEL = """
def pull(first, second):
    return (first - second).square().mean()

models["pull"] = dse.model("DSE", s, dialogues, options={"loss": pull})
trained = run.train(models)"""
OWN_TASK = """
def spread_of(encoder, records, dataset, limit):
    vectors = encoder.encode([record.text for record in records][:limit])
    values = {"spread": float(vectors.std())}
    return tidy_frame(tidy_rows(values, task="spread", dataset=dataset, protocol="paper", n=len(vectors)))

from dialnb.evaluation.metrics import tidy_frame, tidy_rows
asked.append(Task("mine", spread_of, "intents", ["limit"], "spread"))
rows = run.evaluate(trained, asked, floors=trained["BERT"])
display(run.summary("mine", ["model"], ["dataset"]), run.table("T2"))"""


@pytest.mark.slow
def test_a_stranger_runs_dse_turns_a_number_and_adds_a_model_and_a_task(browser, lab):
    open_notebook(browser, lab, "notebooks/dse.ipynb")
    replace_word(browser, "quick", "smoke")
    run_all(browser)
    (folder,) = (lab.project / "runs").glob("dse-smoke-seed1*")
    shown = look_through(browser, "dse-run", folder)
    assert_all_is_well(browser, shown)
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["status"] == "done"
    assert "stage train" in shown["progress"] and "done in" in shown["progress"]

    loss_of = "cell => cell.querySelector('.jp-Cell-outputWrapper').innerText"
    before = browser.run(f"({loss_of})({cell_with('temperature = 0.05')})")
    change_cell(browser, "temperature = 0.05", lambda code: code.replace("0.05", "0.2"))
    browser.wait(f"!!{cell_with('temperature = 0.2')}")  # JupyterLab may be laying out its cells anew
    after = browser.run(f"({loss_of})({cell_with('temperature = 0.2')})")
    assert after and after != before, "the loss is another one at another temperature"
    cosines = browser.run(f"[...{cell_with('temperature = 0.2')}.querySelectorAll('tbody tr')].map({COSINE})")
    assert len(cosines) == 6 and all(-1 <= cosine <= 1 for cosine in cosines)

    change_cell(
        browser, "trained = run.train(models, ahead=asked, beside=longer | others | points)", lambda code: OWN_MODEL
    )
    change_cell(browser, "trained = dse.better_pooling(trained, pooled)", lambda code: OWN_TASK)
    tables = browser.run(f"[...{cell_with('spread_of')}.querySelectorAll('table')].map(table => table.innerText)")
    photograph(browser, "dse-changed")
    menu(browser, "Kernel", "Shut Down Kernel")
    assert len(tables) == 2 and all("pull" in table and "DSE" in table for table in tables)
    assert browser.run(SHOWN)["errors"] == []


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
    done = client.execute(
        cells + f"run = start('dse', profile='smoke', out={str(out)!r})", reply=True, timeout=PATIENCE
    )
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
        "dse.": {"model", "score_four_tasks"},
        "plots.": {"training_curves", "uniformity_alignment"},
        "start('dse', prof": {"profile="},
    }.items(),
)
def test_a_cell_completes_to_the_names_that_one_looks_for(kernel, typed, offered):
    found = kernel.complete(typed, len(typed), reply=True, timeout=PATIENCE)["content"]["matches"]
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
    shown = kernel.inspect(name, len(name), reply=True, timeout=PATIENCE)["content"]["data"]["text/plain"]
    assert words in re.sub(r"\x1b\[[0-9;]*m", "", shown)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_everything_that_a_notebook_calls_explains_itself(name):
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    nodes = list(ast.walk(ast.parse(TransformerManager().transform_cell(code))))
    imports = [(node.module, each) for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    places = {each.asname or each.name: f"{module}.{each.name}" for module, each in imports}
    places["run"] = "dialnb.runs.Run"
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    chains = [call.split(".") for call in calls if re.fullmatch(r"[\w.]+", call)]  # and not of what a call gives
    ours = {".".join([places[first], *rest]) for first, *rest in chains if first in places}
    assert len(ours) > 2
    assert [call for call in sorted(ours) if not inspect.getdoc(pkgutil.resolve_name(call))] == []
