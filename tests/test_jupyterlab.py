"""DSE's notebook and the tour, run and changed in a real JupyterLab in a real browser; and help while one types."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path

import jupyterlab_in_browser
import pytest
import shared
from browser import PATIENCE, Browser
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel
from jupyterlab_in_browser import (
    CODE,
    SHOWN,
    assert_all_is_well,
    cell_with,
    change_cell,
    look_through,
    menu,
    open_notebook,
    page_through,
    replace_word,
    run_all,
)

browser, lab = jupyterlab_in_browser.browser, jupyterlab_in_browser.lab  # fixtures

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


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
def test_the_tour_runs_in_jupyterlab_and_answers(browser, lab):
    open_notebook(browser, lab, "notebooks/00_tour.ipynb")
    replace_word(browser, "quick", "smoke")
    replace_word(browser, "mini", str(lab.encoder))
    run_all(browser)
    page_through(browser, "00_tour")
    shown = browser.run(SHOWN)
    look_around(browser)
    menu(browser, "Kernel", "Shut Down Kernel")
    assert_all_is_well(browser, shown)


COSINE = "row => Number(row.querySelectorAll('td')[2].textContent)"
OWN_MODEL = """
def pull(first, second):
    return (first - second).square().mean()

models["pull"] = Model("DSE", data=dialogues, options={"loss": pull})
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
    assert "stage train" in shown["progress"]

    output_of = "cell => cell.querySelector('.jp-Cell-outputWrapper').textContent"
    before = browser.run(f"({output_of})({cell_with('temperature = 0.05')})")
    cell = change_cell(browser, "temperature = 0.05", lambda code: code.replace("0.05", "0.2"))
    assert "temperature = 0.2" in browser.run(f"({CODE})({cell})")
    browser.wait(f"{cell}.querySelectorAll('tbody tr').length === 6")  # outputs are shown a little after they are there
    assert browser.run(f"({output_of})({cell})") != before, "the loss is another one at another temperature"
    cosines = browser.run(f"[...{cell}.querySelectorAll('tbody tr')].map({COSINE})")
    assert all(-1 <= cosine <= 1 for cosine in cosines)

    cell = change_cell(browser, "= map(run.train, (models, others", lambda code: OWN_MODEL)
    browser.wait(f"({output_of})({cell}).includes('done in')")
    assert "stage train pull" in browser.run(f"({output_of})({cell})")
    cell = change_cell(browser, "trained = run.evaluate(trained, of_baselines)", lambda code: OWN_TASK)
    browser.wait(f"{cell}.querySelectorAll('table').length === 2")
    tables = browser.run(f"[...{cell}.querySelectorAll('table')].map(table => table.textContent)")
    page_through(browser, "dse-changed")
    menu(browser, "Kernel", "Shut Down Kernel")
    assert all("pull" in table and "DSE" in table for table in tables)
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
    with shared.surroundings():
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
        "run.settings.": {"encoder", "seed", "train"},
        "run.settings['bat": {"batch_size"},
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
        "dse.model": "A row of DSE's tables",
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
