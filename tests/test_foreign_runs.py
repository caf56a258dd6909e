"""Runs by others, whatever they hold: a report with a card for each, commands with a sentence, nothing that waits."""

from __future__ import annotations

import json
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import reporting

from dialnb import limits
from dialnb.cli import main
from dialnb.errors import DataError, shown
from dialnb.files import read_run
from dialnb.limits import within
from dialnb.report import build
from dialnb.report.pages import notebook_body
from dialnb.runs.engine import Request, Voice, execute

SPARSE = 20 * 2**30
"""Bytes that a file says it has; its disk has none of them."""


def good_run(folder: Path, seed: int = 1) -> Path:
    rows = reporting.intent_rows({"DSE": 50.0, "BERT": 35.0}, seeds=2).query("train_seed == 0")
    return reporting.write_run(folder, "dse", rows.drop(columns="train_seed"), seed=seed)


def index_of(runs: list[Path], site: Path) -> str:
    return re.sub(r"\s+", " ", build(runs, site).read_text(encoding="utf-8"))


def change(run: Path, **facts: object) -> None:
    """Change what the record of a run says."""
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | facts), encoding="utf-8")


def without(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE)


def packed_table(run: Path) -> None:
    (run / "results.csv").unlink()
    with lzma.open(run / "results.csv.xz", "wb", preset=0) as file:
        file.write(b"model,value\n" + bytes(2**21))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a device for results": (
        lambda run: without(run / "results.csv").symlink_to("/dev/zero"),
        "results.csv is a link that leads out of the folder",
    ),
    "a pipe for results": (lambda run: os.mkfifo(without(run / "results.csv")), "results.csv is no regular file"),
    "a pipe for a record": (lambda run: os.mkfifo(without(run / "run.json")), "run.json is no regular file"),
    "a loop for results": (
        lambda run: without(run / "results.csv").symlink_to("results.csv"),
        "results.csv cannot be opened",
    ),
    "a folder for results": (lambda run: without(run / "results.csv").mkdir(), "results.csv is no regular file"),
    "20 GB of results": (lambda run: sparse(run / "results.csv"), "results.csv has 21,474,836,480 bytes"),
    "20 GB of a record": (lambda run: sparse(run / "run.json"), "run.json has 21,474,836,480 bytes"),
    "results that unpack without end": (packed_table, "results.csv.xz unpacks to more than 1 MB"),
    "5,000 columns": (
        lambda run: pd.DataFrame([range(5_000)]).assign(model="DSE", value=1.0).to_csv(run / "results.csv"),
        "results.csv has more than 500 columns",
    ),
    "100,000 reasons": (
        lambda run: change(run, not_run=[{"table": "T2", "reason": f"{n}"} for n in range(100_000)]),
        "run.json has a list of more than 5,000 entries",
    ),
    "a long reason": (lambda run: change(run, status=["x" * 10**6]), "run.json is not as dialnb writes it"),
    "a deep record": (lambda run: (run / "run.json").write_text("[" * 10**6), "run.json cannot be read as JSON"),
    "1,000 figures": (
        lambda run: [(run / f"figures/{n}.json").touch() for n in range(1_000)],
        "it has more than 200 figures",
    ),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory) -> Path:
    """The report of a good run and of all these."""
    home = tmp_path_factory.mktemp("refused")
    runs = [good_run(home / "good")]
    for name, (spoil, _) in REFUSED.items():
        runs.append(good_run(home / name.replace(" ", "-"), seed=2))
        (runs[-1] / "figures").mkdir()
        spoil(runs[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(limits.SIZES, ".xz", 1)
        build(runs, home / "site")
    return home / "site"


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_be_read_is_one_card_beside_a_good_one(name, refused):
    index = (refused / "index.html").read_text(encoding="utf-8")
    folder = re.escape(name.replace(" ", "-"))
    (reason,) = re.findall(rf"The run <strong>\S+/{folder}</strong> is damaged and was left out: ([^<]*)", index)
    assert REFUSED[name][1] in reason and len(reason) < 1_000
    assert "<td>1</td>" in index and (refused / "dse-quick" / "seed1").is_dir()


def notebook_with(html: str, path: Path) -> None:
    output = nbformat.v4.new_output("display_data", data={"text/html": html})
    cells = [nbformat.v4.new_code_cell("1", outputs=[output])]
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), encoding="utf-8")


LEFT_OUT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe for a notebook": (lambda run: os.mkfifo(run / "notebook.ipynb"), "notebook.ipynb is no regular file"),
    "20 GB of a log": (lambda run: sparse(run / "log.txt"), "log.txt has 21,474,836,480 bytes"),
    "20 GB of a drawing": (lambda run: sparse(run / "figures/F3.svg"), "F3.svg has 21,474,836,480 bytes"),
    "a pipe for a picture": (lambda run: os.mkfifo(without(run / "figures/F3.png")), "F3.png is no regular file"),
    "a deep drawing": (
        lambda run: (run / "figures/F3.svg").write_text(
            '<svg xmlns="http://www.w3.org/2000/svg">' + "<g>" * 10**5 + "</g>" * 10**5 + "</svg>"
        ),
        "lies more than 100 deep in itself",
    ),
    "a drawing that repeats itself": (
        lambda run: (run / "figures/F3.svg").write_text(
            '<svg xmlns="http://www.w3.org/2000/svg"><g id="a"><path/></g>'
            '<g id="b"><use href="#a"/><use href="#a"/></g><use href="#b"/></svg>'
        ),
        "repeats groups of shapes",
    ),
    "100,000 nested div": (
        lambda run: notebook_with("<div>" * 100_000, run / "notebook.ipynb"),
        "notebook.ipynb is damaged and has no page here: its HTML could not be cleaned",
    ),
}


@pytest.fixture(scope="module")
def left_out(tmp_path_factory) -> Path:
    """The report of runs that each have one of these files."""
    home, runs = tmp_path_factory.mktemp("left-out"), []
    for number, (spoil, _) in enumerate(LEFT_OUT.values()):
        runs.append(reporting.write_run(home / f"{number}", "wmdc", pd.DataFrame(), profile=f"p{number}"))
        reporting.write_figure(runs[-1] / "figures")
        spoil(runs[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dialnb.report.pages.FILE_SECONDS", 1)
        build(runs, home / "site")
    return home / "site"


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_file_that_cannot_be_shown_is_one_card_on_the_page_of_its_run(name, left_out):
    page = (left_out / f"wmdc-p{[*LEFT_OUT].index(name)}.html").read_text(encoding="utf-8")
    (card,) = re.findall('<p class="failed">([^<]*)</p>', page)
    assert LEFT_OUT[name][1] in card


def test_40_000_pictures_without_an_end_take_no_time_that_grows_with_their_square(tmp_path):
    notebook_with("<img " * 40_000, tmp_path / "n.ipynb")
    with within(30, "the notebook"):  # it took minutes
        assert notebook_body(tmp_path / "n.ipynb").count("<img") <= 1


def test_too_little_memory_is_said_in_words(tmp_path, monkeypatch):
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dialnb.report.site.notebook_body", no_memory)
    run = good_run(tmp_path / "run")
    reporting.write_notebook(run / "notebook.ipynb")
    build([run], tmp_path / "site")
    assert "no page here: there was not enough memory" in (tmp_path / "site" / "dse-quick.html").read_text()


def test_work_that_would_never_end_is_ended_and_an_outer_limit_goes_on():
    with pytest.raises(DataError, match=r"the outer took more than 0\.2 s"), within(0.2, "the outer"):
        with pytest.raises(DataError, match=r"the inner took more than 0\.01 s"), within(0.01, "the inner"):
            while True:
                pass
        while True:
            pass


# --- one odd run among good ones --------------------------------------------------------------------------------------


def times_of_nothing(run: Path) -> None:
    (run / "tables").mkdir()
    (run / "tables" / "training-times.csv").write_bytes(b"model,seconds\n\xff,1\n")


def text_for_numbers(run: Path) -> None:
    rows = pd.read_csv(run / "results.csv")
    rows.assign(n="many", seed="first").to_csv(run / "results.csv", index=False)


@pytest.mark.parametrize("spoil", [times_of_nothing, text_for_numbers])
def test_an_odd_run_does_not_take_the_good_ones_of_its_group_with_it(spoil, tmp_path):
    runs = [good_run(tmp_path / f"seed{seed}", seed) for seed in (1, 2, 3)]
    spoil(runs[2])
    index = index_of(runs, tmp_path / "site")
    assert "<td>1, 2</td>" in index
    assert len(re.findall("is damaged and was left out: its files do not fit together", index)) == 1
    assert "seed3</strong> is damaged" in index
    assert {path.name for path in (tmp_path / "site" / "dse-quick").glob("seed*")} == {"seed1", "seed2"}


def test_a_run_within_the_folder_of_the_report_is_refused_and_stays(tmp_path):
    good_run(tmp_path / "other")
    build([tmp_path / "other"], tmp_path / "site")
    run = good_run(tmp_path / "site" / "mine")
    (tmp_path / "link").symlink_to(tmp_path / "site")
    for folder in (tmp_path / "site", tmp_path / "link", run):
        with pytest.raises(DataError, match=r"mine lies in .* which a report empties first"):
            build([run], folder)
    assert (run / "results.csv").is_file()


# --- commands on damaged runs -----------------------------------------------------------------------------------------

PLAIN = {"slug": "dse", "profile": "quick", "status": "done", "reason": "", "parameters": {}, "stages": []}
RECORDS = {
    "cut": "{",
    "empty": "",
    "a list": "[]",
    "a number": "1",
    "deep": "[" * 10**5,
    "wrong types": '{"slug": [], "profile": 1, "status": {}, "reason": 2, "parameters": [], "stages": "x"}',
    "wrong stages": json.dumps(PLAIN | {"stages": [1]}),
    "no seed": json.dumps(PLAIN),
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("command", ["list", "compare", "merge", "export"])
def test_commands_say_in_one_sentence_that_a_record_is_damaged(command, name, tmp_path, capsys):
    good, odd = good_run(tmp_path / "runs" / "good"), good_run(tmp_path / "runs" / "odd")
    content = RECORDS[name]
    (odd / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = {
        "list": ["--out", tmp_path / "runs"],
        "compare": [good, odd],
        "merge": [odd, "-o", tmp_path / "all.csv"],
        "export": [odd, "DSE", tmp_path / "model"],
    }
    code = main([command, *map(str, arguments[command])])
    said = capsys.readouterr()
    lines = (said.out if command == "list" else said.err).splitlines()
    about = [line for line in lines if "odd" in line]
    assert "Traceback" not in said.out + said.err
    if name == "no seed" and command in ("list", "compare"):
        assert code == 0  # they need none
    elif command == "list":
        assert code == 0 and len(about) == 1 and "run.json is damaged" in about[0]
    else:
        assert code == 1 and len(about) == 1 and about[0].startswith("dialnb: ") and len(about[0]) < 1_000


@pytest.mark.parametrize("table", ["", "model\nDSE\n", "model,value\nDSE,x\n", "\x00\x01", "a,b\n1\n2,3,4\n"])
@pytest.mark.parametrize("command", ["compare", "merge"])
def test_commands_end_with_a_sentence_or_a_result_on_damaged_tables(command, table, tmp_path, capsys):
    good, odd = good_run(tmp_path / "good"), good_run(tmp_path / "odd")
    (odd / "results.csv").write_text(table, encoding="utf-8")
    (odd / "claims.json").write_text("[1", encoding="utf-8")
    arguments = {"compare": [good, odd], "merge": [good, odd, "-o", tmp_path / "all.csv"]}
    code = main([command, *map(str, arguments[command])])
    said = capsys.readouterr()
    assert code == 0 or (said.err.startswith("dialnb: ") and len(said.err.splitlines()) == 1)


def test_what_others_write_moves_no_cursor_and_hides_nothing(tmp_path, capsys):
    acts = "\x1b[2J\x1b]0;title\x07\x9b1A\u202eback\r"
    odd = good_run(tmp_path / "runs" / "a\x1b[31m")
    change(odd, status=acts, slug="dse", updated=acts)
    assert main(["list", "--out", str(tmp_path / "runs")]) == 0
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "run.json").write_text(json.dumps({"slug": acts}), encoding="utf-8")
    assert main(["merge", str(tmp_path / "runs" / "b"), "-o", str(tmp_path / "all.csv")]) == 1
    assert main(["compare", str(odd), str(odd / acts)]) == 1
    said = capsys.readouterr()
    assert not set(acts[0] + "\x07\x9b\u202e\r") & set(said.out + said.err)
    assert r"a\x1b[31m: \x1b[2J\x1b]0;title\x07\x9b1A\u202eback\r" in said.out
    assert shown("kept: é 漢 \n\t") == "kept: é 漢 \n\t"


def test_a_notebook_may_colour_a_terminal_and_do_nothing_else_with_it(tmp_path, capsys, monkeypatch):
    with (tmp_path / "log").open("w", encoding="utf-8") as log, Voice(log) as voice:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        voice.write("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\n")
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m " + r"\x1b]0;title\x07\x1b[2J" + "\n"
    assert (tmp_path / "log").read_text(encoding="utf-8") == r"red \x1b]0;title\x07" + "\n"


@pytest.mark.parametrize("name", RECORDS)
def test_a_run_into_a_folder_with_a_damaged_record_ends_with_a_sentence_and_a_record(name, tmp_path, monkeypatch):
    monkeypatch.setattr("dialnb.runs.engine._papermill", lambda *_: "its kernel died")
    request = Request("toy", "smoke", out=tmp_path)
    request.folder.mkdir()
    content = RECORDS[name]
    (request.folder / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    run = execute(request, Path(__file__).parent / "toy")
    assert (run.status, run.reason) == ("failed", "its kernel died")
    record = read_run(request.folder)
    assert (record["slug"], record["status"], record["reason"]) == ("toy", "failed", "its kernel died")


def test_commands_read_no_20_gb_of_claims_or_of_a_figure(tmp_path, capsys):
    good, odd = good_run(tmp_path / "good"), good_run(tmp_path / "odd")
    (odd / "figures").mkdir()
    sparse(odd / "claims.json")
    sparse(odd / "figures" / "F1.json")
    assert main(["compare", str(good), str(odd)]) == 1
    assert "claims.json has 21,474,836,480 bytes" in capsys.readouterr().err
    assert main(["figures", str(odd)]) == 1
    assert "F1.json has 21,474,836,480 bytes" in capsys.readouterr().err
