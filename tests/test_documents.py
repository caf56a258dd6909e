"""README, CONTRIBUTING and the papers' pages say what happens: all that they tell a reader to type is run.

`tests/documents.py` says what is collected, and how a note beside it makes a long example short.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import click
import nbformat
import pandas as pd
import processes
import pytest
import shared
from documents import Example, PageError, as_main, as_script, collected, examples, words_of
from nbformat.v4 import new_code_cell, new_notebook
from test_ecosystem_hub import local_hub, make_encoder  # noqa: F401

from dialnb import cli, plots
from dialnb.cli import dialnb as dialnb_command
from dialnb.data import load, sources
from dialnb.evaluation import bundled
from dialnb.files import read_run
from dialnb.models.encoder import load_encoder
from dialnb.models.selector import Selector
from dialnb.runs import start
from dialnb.studies import dse
from tools.timeline import began

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = collected(ROOT)
BYTES = b"what the local server has at every address\n"
LINE = "%Y/%m/%d %H:%M:%S.999, 60 %%, 12 %%, 2048 MiB, 350.12 W\n"
SHORT = """from dialnb.runs import start

run = start("SLUG", profile=profile, seed=seed, encoder=encoder, overrides=overrides, out=out)
run.finish()"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of the project to type in, with what readers have of their own:

    an encoder `one-layer` and a selector, lists of replies, a run `RUN`, a folder `RUNS` with it, readings `FILE` of a
    GPU, and notebooks of two cells in `short/`.
    """
    folder = tmp_path_factory.mktemp("clone")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)  # so that what is ignored is
    shutil.copytree(shared.small_encoder(tmp_path_factory), folder / "one-layer")
    Selector(load_encoder(str(folder / "one-layer")), 64).save(folder / "my-selector")
    replies = {"context": ["i want a table", "for two please"], "candidates": ["ok sure", "bye"], "labels": [1, 0]}
    (folder / "lists.jsonl").write_text(f"{json.dumps(replies)}\n" * 3, encoding="utf-8")
    (folder / "short").mkdir()
    for slug in ("dse", "ums"):
        cells = [new_code_cell('profile, seed, encoder, overrides, out = "quick", 1, "", {}, ""')]
        cells[0].metadata["tags"] = ["parameters"]
        cells.append(new_code_cell(SHORT.replace("SLUG", slug)))
        kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / "short" / f"{slug}.ipynb")
    words = (ROOT / "dialnb" / "assets" / "examples" / "utterances.csv").read_text(encoding="utf-8")
    (folder / "renamed.csv").write_text(words.replace("text", "Utterance", 1), encoding="utf-8")
    with typing_in(folder, tmp_path_factory):
        run = start("dse", "smoke", encoder="one-layer", out="RUN")
        run.stage("train DSE", make_encoder, seed=3)
        given = {"task": "intent", "dataset": "Clinc150", "metric": "Accuracy", "protocol": "paper", "seed": [1, 2]}
        run.add(pd.DataFrame(given | {"shots": 1, "value": [50.0, 60.0], "n": 10}), model="DSE", table="T2")
        one, other = (load("bundled/dialogues")[number].utterances for number in (422, 0))
        pairs = dse.pair_rows(one, other[0])
        run.figure("F2", plots.pair_construction, data=pairs, caption="Pairs.", alt="Utterances in pairs.")
        run.finish()
    shutil.copytree(folder / "RUN", folder / "RUNS" / "first")
    reading = began(read_run(folder / "RUN")).strftime(LINE)
    (folder / "FILE").write_text(reading, encoding="utf-8")
    return folder


@contextlib.contextmanager
def typing_in(folder: Path, factory: pytest.TempPathFactory, **variables: object):
    """The surroundings of a command that is typed in a folder: no network, the cache of all smoke runs, and one set of
    intents for a quick score."""
    own = {"DIALNB_CACHE": shared.smoke_cache(factory), "DIALNB_OFFLINE": 1, "MAKEFLAGS": "", "MTEB_CACHE": folder}
    with (
        shared.surroundings(**own | variables) as words,
        contextlib.chdir(folder),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(bundled, "INTENT_SETS", {"Snips": bundled.INTENT_SETS["Snips"]})
        yield words


@pytest.fixture
def local_server(monkeypatch):
    """The address of a server of all files of all sources: the same few bytes, which the registry then expects."""

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BYTES)))
            self.end_headers()
            self.wfile.write(BYTES)

        def log_message(self, *words: object) -> None:
            """Stay silent."""

    about = {"sha256": hashlib.sha256(BYTES).hexdigest(), "size": len(BYTES), "members_sha256": ""}
    registry = {}
    for name, source in sources.load_registry().items():
        files = tuple(dataclasses.replace(file, **about) for file in source.files)
        registry[name] = dataclasses.replace(source, files=files)
    monkeypatch.setattr(sources, "load_registry", lambda: registry)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def type_in(clone, tmp_path_factory, request) -> Callable[[str], None]:
    """A function that runs a command as a reader would in the clone; one that does not end well fails the test."""

    def run(command: str) -> None:
        expected = int(command.startswith("!"))
        variables, words = words_of(command.removeprefix("!"), clone)
        if variables.get("DIALNB_MIRROR") == "local-server":
            variables |= {"DIALNB_MIRROR": request.getfixturevalue("local_server"), "DIALNB_OFFLINE": "0"}
            variables["DIALNB_CACHE"] = tmp_path_factory.mktemp("fetched")
        if variables.pop("HF_ENDPOINT", "") == "local-hub":
            request.getfixturevalue("local_hub")
            variables["DIALNB_OFFLINE"] = "0"
        program, *rest = [words[0].removeprefix(".venv/bin/"), *words[1:]]
        with typing_in(clone, tmp_path_factory, **variables) as said:
            if program == "make":
                code = in_a_shell(["make", "-n", *rest], said)
            elif "install" in rest and "--dry-run" not in rest:
                raise PageError(f"{command!r} would install something: say in a note what is tested instead")
            elif program == "dialnb" or words[1:3] == ["-m", "dialnb"]:
                code = cli.main(rest[0 if program == "dialnb" else 2 :])
            elif program == "papermill":
                shared.papermill_command(rest, standalone_mode=False)
                code = 0
            elif program == "snakemake":
                code = forked(tmp_path_factory, said, as_main, clone, "snakemake", rest)
            elif program == "python" and rest[0] == "-c":
                code = forked(tmp_path_factory, said, as_script, clone, rest[1:])
            elif words[1:2] == ["-m"] and words[2].split(".")[0] in ("benchmarks", "tools"):
                code = forked(tmp_path_factory, said, as_main, clone, words[2], rest[2:])
            else:
                code = in_a_shell([sys.executable if program == "python" else words[0], *rest], said)
        assert code == expected, f"$ {command}\nexit code {code}, expected {expected}\n{said.getvalue()[-6000:]}"

    return run


def in_a_shell(words: list[str], said) -> int:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    said.write(done.stdout)
    return done.returncode


def forked(factory: pytest.TempPathFactory, said, function: Callable, *arguments: object) -> int:
    """The exit code of a function in a process of its own."""
    process = processes.Process(factory.mktemp("process") / "words", function, *arguments, **os.environ)
    code = process.wait()
    said.write(process.said())
    return code


def options_of(command: click.Command) -> set[str]:
    """All options of a command and of those below it."""
    found = {name for parameter in command.params for name in parameter.opts}
    return found.union(*map(options_of, getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_what_a_page_says_is_what_happens(example, clone, type_in, tmp_path_factory):
    parts = example.tested()
    if example.language == "sh":
        for command in dict.fromkeys([*example.before, *parts]):
            type_in(command)
    elif example.language == "options":
        for part in parts:
            assert part.split()[0] in options_of(dialnb_command), part
            if part.startswith("--set "):
                type_in(f"dialnb run {Path(example.page).parent.name} --dry-run {part}")
    else:
        asked = {
            name.name for node in ast.walk(ast.parse(parts[0])) if isinstance(node, ast.Import) for name in node.names
        }
        if "mteb" in asked and find_spec("mteb") is None:
            pytest.skip("the extra 'mteb' is not installed")
        with typing_in(clone, tmp_path_factory) as said:
            code = forked(tmp_path_factory, said, as_script, clone, [*example.before, *parts])
        assert code == 0, said.getvalue()[-6000:]


# --- how pages are read -----------------------------------------------------------------------------------------------


def read(*lines: str) -> list[Example]:
    return examples("page", "\n".join(lines))


def test_blocks_and_commands_in_prose_lists_and_tables_are_collected():
    found = read(
        *(
            "Type `dialnb list`, not `run`, with `.venv/bin/python`,",
            "or `--json`; `make` alone is a program, `A=1 make b` is not.",
            "",
        ),
        *("| `dialnb evaluate a\\|b` | no command |", "|---|---|", "1. Numbered:", ""),
        *(
            "   ```sh",
            "   dialnb data \\",
            "     list  # all",
            "   # a comment",
            "   ```",
            "```python",
            "a = 1  # kept",
            "```",
        ),
    )
    assert [(one.language, *one.parts) for one in found] == [
        *(("options", "--json"), ("sh", "dialnb list", "A=1 make b"), ("sh", "dialnb evaluate a|b")),
        *(("sh", "dialnb data    list"), ("python", "a = 1  # kept")),
    ]
    assert all(one.tested() == [*one.parts] and not one.before for one in found)


def test_a_note_says_what_is_run_first_and_in_place_of_what_stands_there():
    (block,) = read("```sh", "make a", "make b", "```", "<!-- test:", "cp c d", "make b => V=1 ... -k", "-->")
    assert (block.before, block.tested()) == (["cp c d"], ["make a", "V=1 make b -k"])
    (script,) = read("```python", 'load("large", 9)', "```", '<!-- test: "large" => "small" -->')
    assert script.tested() == ['load("small", 9)']


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["```", "dialnb list", "```"], "must be one of sh, python"),
        (["```sh", "dialnb list"], "``` is missing"),
        (["<!-- test: make a => make b -->"], "has no example above it"),
        (["`make a`", "<!-- test: make b => make c -->"], "speaks of 'make b', which does not stand above it"),
        (["`make a b`", "<!-- test: make a => make c -->"], "speaks of 'make a', which"),
    ],
)
def test_a_page_that_cannot_be_tested_is_refused(lines, words):
    with pytest.raises(PageError, match=words):
        [one.tested() for one in read(*lines)]


@pytest.mark.parametrize("command", ["dialnb evaluete mini", "dialnb list --short", ".venv/bin/python -m tools.nothing",
                                     "make nothing", "conda list", "! dialnb list"])  # fmt: skip
def test_a_new_command_that_does_not_work_fails(command, type_in):
    with pytest.raises((AssertionError, FileNotFoundError)):
        type_in(command)


def test_a_new_command_that_installs_needs_a_note(type_in):
    with pytest.raises(PageError, match="say in a note"):
        type_in(".venv/bin/python -m pip install something")
