"""Keep a finished run in the repository: its numbers beside the paper's, its figures, its executed notebook.

    python -m tools.record RUN [RUN ...]

A run of the same profile with another seed joins what is kept; the notebook stays that of the first run, and so do
figures but those over training seeds:
python -m tools.record --pool RUN [RUN ...]

Kept runs are judged again: python -m tools.record papers/*/results/gpu
"""

from __future__ import annotations

import argparse
import base64
import json
import lzma
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dialnb.errors import DataError, DialnbError
from dialnb.files import (
    ITEMS,
    as_list,
    project_root,
    read_json,
    read_rows,
    table_at,
    write_json,
    write_table,
    write_whole,
)
from dialnb.plots.style import smaller
from dialnb.report.gather import gather, recorded_runs, rows_of, seeds_of
from dialnb.runs.figures import redraw
from dialnb.runs.tools import open_run
from tools.crate import write_crate
from tools.digest import digest

_RATES = ("learning_rate", "head_learning_rate", "epochs")
_DSE: dict[str, list[str]] = {
    "raw_learning_rate": ["masked words.learning_rate"],
    **{f"simcse_{name}": [f"SimCSE-unsup.{name}"] for name in ("max_steps", "learning_rate")},
    **{f"todbert_{name}": [f"TOD-BERT.{name}"] for name in ("max_steps", "learning_rate")},
}
FORMER: dict[str, dict[str, list[str]]] = {
    "dse": _DSE
    | {f"dropout_{name}": [f"DSE-dropout.{name}"] for name in ("epochs", "learning_rate")}
    | {"simcse_mean_learning_rate": []}
    | {name: [f"DSE.{name}", *([f"DSE-dropout.{name}"] if name != "epochs" else [])] for name in _RATES},
    "wmdc": _DSE
    | {f"wmdc_{name}": [f"WMDC.{name}"] for name in ("epochs", "max_steps", "learning_rate")}
    | {name: [f"DSE.{name}"] for name in _RATES},
    "tadse": {"raw_learning_rate": ["masked words.learning_rate"]}
    | {name: [f"TaDSE.{name}"] for name in ("epochs", "steps", "learning_rate")},
    "dialoguecse": {
        "adapt_epochs": ["adaptation.epochs"],
        "adapt_batch": ["adaptation.batch_size"],
        "adapt_steps": ["adaptation.max_steps"],
        "adapt_learning_rate": ["adaptation.learning_rate"],
        "siamese_s_learning_rate": ["SiameseBERT-s.learning_rate"],
        "siamese_m_learning_rate": ["SiameseBERT-m.learning_rate"],
        "mdc_learning_rate": ["DialogueCSE on MDC.learning_rate"],
        "mdc_siamese_s_learning_rate": ["SiameseBERT-s on MDC.learning_rate"],
        "mdc_siamese_m_learning_rate": ["SiameseBERT-m on MDC.learning_rate"],
        "learning_rate": ["DialogueCSE.learning_rate"],
        "epochs": ["DialogueCSE.epochs", "SiameseBERT-s.epochs", "SiameseBERT-m.epochs"],
    },
    "ums": {
        "raw_learning_rate": ["masked words.learning_rate"],
        "sample_epochs": ["UMS on a sample.epochs"],
        "post_batch": ["next sentences.batch_size", "replaced tokens.batch_size"],
        "post_epochs": ["next sentences.epochs", "replaced tokens.epochs"],
        "post_rate": ["next sentences.learning_rate", "replaced tokens.learning_rate"],
    }
    | {name: [f"UMS.{name}"] for name in (*_RATES, "warmup")},
    "matrix": {"ums_learning_rate": ["UMS.learning_rate"]},
}
"""What settings of trainings were called in records that are older than the rows of `train`, by paper."""

FREE = {"seed", "workers"}
"""Parameters that runs of one record may differ in: no number depends on how many stages are made at once."""
PARTS = {"models", "subsets", "sentence_encoders", "temperatures", "negative_counts", "turn_counts"}
PARTS |= {"dialogue_counts", "sides", "freezes", "other_starts"}
"""Lists of which a run may have a part: every value makes rows of its own, and no other row depends on it."""
ALONE = {"timed_steps"}
"""What wants the machine to itself, so that of runs at once only one may have it, whichever is kept first."""
LARGEST = 3_000_000
"""Bytes of an executed notebook that code hosts still show."""
LEFT_OUT = (".*", "log.txt", "*.png", "*.svg", "*.pdf", "*.tex", "encoders")
"""What can be made again from what is kept or by the run; figures are kept as data, encoders by their commands."""
STAGES = 4
"""Lines about stages that a cell of a recorded notebook shows."""
PACKED = 30_000
"""Bytes from which the data of a figure are compressed."""
PACKED_ROWS = 100_000
"""As ``PACKED``, of the run's own tables: smaller ones stay readable where the code is hosted."""
OF_ITEMS = ("item", "group", "value")
"""What differs between the test items that a model was asked in one go."""
DIGITS = 4
"""Significant digits of the data of a figure, when compressed: enough for any that is drawn."""


def record(folder: Path, root: Path) -> list[Path]:
    """Copy a run to ``papers/<slug>/results/<profile>/`` and its figures to ``figures/<slug>/``; the places written to.

    A run that did not finish, or whose notebook is too large to be read where the code is hosted, is refused. Paths of
    the machine it ran on are taken out of the notebook. What was recorded before for the profile is replaced.
    A run with values set by hand is a trial: how it ran is kept in ``papers/<slug>/trial/<profile>/``, not its results.
    A folder that is such a record already is judged again.
    """
    run = _finished(folder)
    if run["set_by_hand"].keys() - FREE - ALONE:
        return [_record_trial(folder, root / "papers" / run["slug"] / "trial" / run["profile"])]
    place, figures = root / "papers" / run["slug"] / "results" / run["profile"], root / "figures" / run["slug"]
    if place.resolve() == folder.resolve():
        judge_again(place)
        return [place]
    notebook = folder / "notebook.ipynb"
    text = portable(notebook.read_text(encoding="utf-8"), folder, root) if notebook.is_file() else ""
    if (size := len(text.encode())) > LARGEST:
        raise DataError(
            f"{notebook} has {size / 1e6:.1f} MB, more than the {LARGEST / 1e6:g} MB that are shown where code is "
            "hosted; draw fewer points (dialnb run PAPER --help-parameters)"
        )
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns(*LEFT_OUT))
    pack_large(place)
    if table_at(place, ITEMS):
        write_items(read_rows(place, ITEMS), place)
    if text:
        (place / "notebook.ipynb").write_text(text, encoding="utf-8")
    write_run(place, run)
    write_crate(place)
    figures.mkdir(parents=True, exist_ok=True)
    for old in figures.glob("*.*"):
        old.unlink()
    for drawn in sorted((folder / "figures").glob("*.png")):
        shutil.copy2(drawn, figures)
    return [place, figures]


def pool(folder: Path, root: Path) -> list[Path]:
    """Add the rows of a run to what is kept of its profile, and judge all trainings together; the place written to.

    Both must be finished runs of the profile as it stands, from other seeds and with equal parameters; of the lists
    in ``PARTS`` (models to train, values of a sweep) the run may have some, and then adds the rows of these; in what
    ``ALONE`` names they may differ. The record says of each run that joined it when, where and by which code it was
    made, and in which of these it differs.
    """
    run = _finished(folder)
    place = root / "papers" / run["slug"] / "results" / run["profile"]
    if not (place / "run.json").is_file():
        raise DataError(f"{folder} has nothing to join: nothing is recorded in {place.relative_to(root)}; record it")
    kept = read_json(place / "run.json")
    seeds = seeds_of(kept)
    if (seed := run["parameters"]["seed"]) in seeds:
        raise DataError(f"{folder} cannot join the record: seed {seed} is in it; it has {', '.join(map(str, seeds))}")
    shorter = {}
    settings = [by_training(each) for each in (kept, run)]
    for name in sorted({**settings[0], **settings[1]}.keys() - FREE):
        ours, theirs = (each.get(name) for each in settings)
        if ours == theirs:
            continue
        some = name in PARTS and set(theirs or ()) <= set(ours or ())
        if some or name in ALONE:
            shorter[name] = as_list(theirs or [])
        else:
            raise DataError(f"{folder} cannot join the record: its {name} is {theirs}, that of the record {ours}")
    tables: dict[str, pd.DataFrame] = {}
    for name in ("results.csv", ITEMS):
        parts = [rows_of(of, source, name) for of, source in ((kept, place), (run, folder)) if table_at(source, name)]
        if len(parts) == 1:
            raise DataError(f"{folder} cannot join the record: only one of them has {name}")
        tables |= {name: pd.concat(parts, ignore_index=True)} if parts else {}
    for name, rows in tables.items():
        _remove_table(place, name)
        if name == ITEMS:
            write_items(rows, place)
        else:
            rows.to_csv(place / name, index=False)
    facts = {name: run[name] for name in ("started", "seconds", "code", "hardware", "gpu_busy") if name in run}
    facts |= {"shorter": shorter} if shorter else {}
    write_run(place, kept | {"pooled": [*kept.get("pooled", []), {"seed": seed, **facts}]})
    for name in join_figures(place / "figures", folder / "figures", seeds, seed):
        redraw(place, ("png",), out=root / "figures" / run["slug"], pattern=name)
    pack_large(place)
    judge_again(place)
    return [place]


def by_training(run: dict) -> dict:
    """The parameters of a run with what was set of each training by its full name, also of one that was made when they
    had flat names."""
    kept = dict(run["parameters"])
    rows = kept.pop("train", {})
    for former, names in FORMER.get(run["slug"], {}).items():
        if value := kept.pop(former, None):
            for row, name in (each.rsplit(".", 1) for each in names):
                rows.setdefault(row, {}).setdefault(name, value)
    return kept | {f"train.{row}.{name}": value for row in rows for name, value in rows[row].items()}


def join_figures(place: Path, folder: Path, seeds: Sequence[int], seed: int) -> list[str]:
    """Add the data of a run's figures to those of the record whose column `seed` counts trainings; their names."""
    joined = []
    for about in sorted(place.glob("*.json")):
        name = f"{about.stem}.csv"
        if table_at(place, name) is None or table_at(folder, name) is None:
            continue
        ours, theirs = (read_rows(each, name) for each in (place, folder))
        if len(ours) and "seed" in theirs and {*ours["seed"]} <= {*seeds} and {*theirs["seed"]} == {seed}:
            _remove_table(place, name)
            pd.concat([ours, theirs], ignore_index=True).to_csv(place / name, index=False)
            joined.append(about.stem)
    return joined


def _remove_table(folder: Path, name: str) -> None:
    """Remove a table, as it is or compressed."""
    if path := table_at(folder, name):
        path.unlink()


def _finished(folder: Path) -> dict:
    """The record of a run that is done."""
    run = open_run(folder)
    if run["status"] != "done":
        raise DataError(f"{folder} is not recorded: the run is {run['status']} {run.get('reason', '')}".rstrip())
    return run


def judge_again(folder: Path) -> None:
    """Judge a record anew and write its claims, the paper's tables and the page of advice, where it has one, as today's
    code does; the measurements stay."""
    from dialnb.claims.comparison import compare_table
    from dialnb.claims.papers import load_paper
    from dialnb.studies.matrix_guide import FILE, page

    (group,) = gather([folder])
    write_json(folder / "claims.json", group.judge().to_dict())
    for name in load_paper(group.slug).tables:
        if (stem := folder / "tables" / name).with_suffix(".csv").is_file():
            write_table(compare_table(group.slug, name, group.results, group.not_run), stem)
            stem.with_suffix(".tex").unlink(missing_ok=True)
    if (folder / FILE).is_file():
        (folder / FILE).write_text(page(group), encoding="utf-8")
    write_crate(folder)


def pack_large(place: Path) -> None:
    """Compress what is too large to be read where the code is hosted: tables, and the data of figures."""
    for data in (place / "figures").glob("*.csv"):
        if data.stat().st_size > PACKED:
            _pack(data, read_rows(data.parent, data.name).to_csv(index=False, float_format=f"%.{DIGITS}g").encode())
    for rows in place.glob("*.csv"):
        if rows.stat().st_size > PACKED_ROWS:
            _pack(rows, rows.read_bytes())


def write_run(place: Path, run: dict) -> None:
    """What a run says of itself, each of its stages on a line: fewer bytes, and easier to read."""
    write = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    text = write(run, indent=1)
    if stages := run.get("stages"):
        lines = ",\n  ".join(map(write, stages))
        text = write(run | {"stages": []}, indent=1).replace('\n "stages": []', f'\n "stages": [\n  {lines}\n ]')
    write_whole(place / "run.json", text + "\n")


def write_items(rows: pd.DataFrame, place: Path) -> None:
    """What test items scored: lists in one row for each model and question take a twentieth of the space of rows."""
    lists = [column for column in OF_ITEMS if column in rows]
    labels = [column for column in rows if column not in lists]
    rows.groupby(labels, dropna=False, sort=False)[lists].agg(list).map(json.dumps).to_csv(place / ITEMS)


def _pack(path: Path, content: bytes) -> None:
    """The content compressed, in place of the file."""
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(content))
    path.unlink()


def _record_trial(folder: Path, place: Path) -> Path:
    kept = [folder / "run.json", folder / "tables" / "training-times.csv"]
    for path in kept:
        if not path.is_file():
            raise DataError(f"{folder} is not recorded as a trial: it has no {path.relative_to(folder)}")
    place.mkdir(parents=True, exist_ok=True)
    for path in [*kept, *folder.glob("gpu.csv")]:
        shutil.copy(path, place)
    return place


def portable(notebook: str, folder: Path, root: Path) -> str:
    """An executed notebook with small pictures, tables once, few lines about stages, and no paths of its machine."""
    content = json.loads(notebook)
    for number, cell in enumerate(content["cells"], 1):
        cell["metadata"].pop("papermill", None)  # when it began and ended, in more bytes than many cells have
        if "outputs" in cell:
            cell["outputs"] = _fewer_stages(cell["outputs"])
        for data in (output.get("data", {}) for output in cell.get("outputs", ())):
            if "image/png" in data:
                try:
                    picture = smaller(base64.b64decode("".join(data["image/png"])))
                except (OSError, ValueError) as error:
                    raise DataError(f"{folder}/notebook.ipynb: cell {number} shows a broken picture: {error}") from None
                data["image/png"] = base64.b64encode(picture).decode()
            if "text/html" in data:
                data["text/html"] = lighter("".join(data["text/html"]))
            if "text/html" in data or "image/png" in data:  # the same in plain text, which nobody sees
                data.pop("text/plain", None)
    notebook, about = json.dumps(content, indent=1, ensure_ascii=False) + "\n", content["metadata"].get("papermill", {})
    ran_in = Path(about["output_path"]).parent if about.get("output_path") else folder
    for path, shown in ((ran_in, f"runs/{folder.name}"), (folder.resolve(), f"runs/{folder.name}"), (root, ".")):
        notebook = notebook.replace(json.dumps(str(path))[1:-1], shown)
    return notebook


def lighter(html: str) -> str:
    """A styled table in about half the bytes: cells that look alike share a class instead of being listed each."""
    looks: dict[str, str] = {}

    def rule(found: re.Match) -> str:
        name = f"look{len(set(looks.values()))}"
        looks.update(dict.fromkeys(found["cells"].replace("#", "").split(", "), name))
        return f"#{found['table']} .{name} {{"

    def cell(found: re.Match) -> str:
        return f'<td class="{" ".join(filter(None, (found["column"], looks.get(found["id"]))))}"'

    html = re.sub(r"(?P<cells>#(?P<table>T_\w+?)_row\d+_col\d+(?:, #T_\w+)*) \{", rule, html)
    html = re.sub(r'<td id="(?P<id>T_\w+)" class="data row\d+ (?P<column>col\d+)" ?', cell, html)
    return re.sub(r"\n +", "\n", html)


def _fewer_stages(outputs: list[dict]) -> list[dict]:
    """The outputs of a cell, lines printed one after the other together; of many lines that report a stage each the
    first ones, and how many more there were."""
    kept, told = [], 0
    last: dict[str, Any] = {}
    for output in outputs:
        if output.get("name") != "stdout":
            kept.append(output)
            continue
        if not kept or kept[-1].get("name") != "stdout":
            kept.append({**output, "text": []})
        for line in "".join(output["text"]).splitlines(keepends=True):
            told += (stage := line.startswith("stage "))
            last = kept[-1] if stage else last
            kept[-1]["text"] += [line] if not stage or told <= STAGES else []
    if told > STAGES:
        last["text"].append(f"... and {told - STAGES} more: run.json lists every stage\n")
    return [output for output in kept if output.get("text", True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Keep the runs, say how large they are, and write the digest of all that is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="RUN", help="finished runs, or kept ones to judge again"
    )
    parser.add_argument("--pool", action="store_true", help="join runs of other seeds to what is kept of their profile")
    parser.add_argument("--project", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")
    options = parser.parse_args(arguments)
    root = project_root(options.project)
    try:
        places = [place for folder in options.folders for place in (pool if options.pool else record)(folder, root)]
    except DialnbError as error:
        parser.exit(1, f"record: {error}\n")
    if not options.project:
        home = root / "papers"
        (home / "REPORT.md").write_text(digest(gather(recorded_runs()), home), encoding="utf-8")
    for place in places:
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        print(f"{place.relative_to(root)}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
