"""Writes the site: an overview, one page per paper and setting, the executed notebooks, and everything to download."""

import glob
import os
import re
import shlex
import shutil
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dialnb.claims import DECIDED, NOT_RUN
from dialnb.claims.comparison import compare_table
from dialnb.claims.intervals import PLACE
from dialnb.claims.papers import STUDIES, load_paper
from dialnb.claims.rendering import RAN, SUBSTITUTE, Comparison, render
from dialnb.claims.rows import prepared
from dialnb.errors import DataError, in_words, shown
from dialnb.files import Values, make_folder, project_root, read_record, read_yaml, write_table
from dialnb.limits import FILE_SECONDS, PAGE_SECONDS, POOLS, regular, shortened, within
from dialnb.report.gather import Damaged, Group, Run, gather, records
from dialnb.report.pages import markdown_body, notebook_body, picture
from dialnb.runs.figures import redraw

if TYPE_CHECKING:
    from dialnb.runs.engine import NotebookRun

GROUPING = ("setting", "threshold", "dataset", "split", "approach", "backbone")
"""Row labels under which a table's rows are gathered; the others stand small beside the model."""
ASSETS = ("style.css", "report.js")
KEPT = (
    "run.json",
    "results.csv",
    "results.csv.xz",
    "claims.json",
    "ro-crate-metadata.json",
    "notebook.ipynb",
    "log.txt",
)
"""Files of a run to download."""
KINDS = ("svg", "png", "csv", "csv.xz")
"""Of a figure; a PDF by somebody else can act when it is opened, and stays where it is."""


def build(
    runs: Sequence[Path], folder: Path, left_out: Mapping[str, str] = {}, here: Sequence["NotebookRun"] = ()
) -> Path:
    """Write the report of these run folders into `folder` (emptied first) and return its first page.

    `left_out` says, for papers without a run, why there is none. Of runs that were made `here`, on this machine, the
    first page says first what the records found, and then how these runs compare.
    """
    if inside := [run for run in runs if run.resolve().is_relative_to(folder.resolve())]:
        raise DataError(f"the run {inside[0]} lies in {folder}, which a report empties first; name another folder")
    damaged: list[Damaged] = []
    groups = gather(runs, damaged)
    if folder.exists() and any(folder.iterdir()) and not (folder / ASSETS[1]).is_file():
        raise DataError(f"{folder} holds files that are no report; name an empty folder, or one that a report made")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ASSETS:
        shutil.copyfile(Path(__file__).parent / name, folder / name)
    pages = [page for group in groups if (page := _page(group, folder, damaged))]
    have = [page["group"].slug for page in pages]
    bare = [Group(slug, slug) for slug in STUDIES if slug not in have]
    pages += [page for group in bare if (page := _page(group, folder, damaged))]
    pages.sort(key=lambda page: STUDIES.index(page["group"].slug))
    for damage in damaged:
        print(shown(f"report: left out {damage}"), file=sys.stderr)
    main = [next(of_paper) for _, of_paper in groupby(pages, lambda page: page["group"].slug)]  # the most telling ones
    claims = [claim for page in main if not page["paper"].own for claim in page["claims"]]
    kept = [_record(record, folder) for record in records()] if here else []
    return _write(
        folder / "index.html",
        "index",
        pages=pages,
        main=main,
        claims=claims,
        gallery=read_yaml(__file__, "gallery.yaml"),
        damaged=damaged,
        left_out=left_out,
        records=kept,
        here=here,
        agreement=_agreement(kept, main),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def _record(record: Values, folder: Path) -> Values:
    """What a record found, with its page of claims."""
    record = record | {"claims": [_claim(claim) for claim in record["claims"]]}
    _write(folder / f"record-{record['paper'].slug}.html", "record", record=record)
    return record


def _agreement(kept: Sequence[Values], pages: Sequence[Values]) -> Counter[bool]:
    """In how many comparisons of two models the same one is ahead in a run as in the record, and in how many not."""
    ahead = {}
    for record in kept:
        for claim in record["claims"]:
            if claim["kind"] == "gain" and claim["estimate"]:
                ahead[record["paper"].slug, claim["id"]] = claim["estimate"] > 0
    run = {(page["paper"].slug, claim["id"]): claim["estimate"] for page in pages for claim in page["claims"]}
    return Counter((run[key] > 0) == first for key, first in ahead.items() if run.get(key))


def _page(group: Group, folder: Path, damaged: list[Damaged]) -> Values | None:
    """Write the page of one group and return what it shows.

    Of runs that cannot be shown, alone or with the others, as many stay as can; the rest is added to those `damaged`.
    """
    print(f"report: {group.name}", file=sys.stderr)
    whole = _written(group, folder)
    if not isinstance(whole, Exception):
        return whole
    if not group.runs:
        raise whole
    alone = [_written(replace(group, runs=[run]), folder) for run in group.runs]
    sound = [run for run, page in zip(group.runs, alone) if not isinstance(page, Exception)]
    pools = (pool for size in range(len(sound), 0, -1) for pool in combinations(sound, size))
    tries = (_written(replace(group, runs=pool), folder) for pool in chain(islice(pools, POOLS), zip(sound)))
    page = next((page for page in tries if not isinstance(page, Exception)), None)
    shown_folders = [run.folder for run in page["group"].runs] if page else []
    for run, reason in zip(group.runs, alone):
        if run.folder not in shown_folders:
            why = in_words(reason if isinstance(reason, Exception) else whole)
            damaged.append(Damaged(run.folder, DataError(f"its files do not fit together: {why}")))
    return page


def _written(group: Group, folder: Path) -> Values | Exception:
    """Write the page of a group; what it shows, or why there is none."""
    shutil.rmtree(folder / group.name, ignore_errors=True)
    try:
        with within(PAGE_SECONDS, "making its page"):
            page = _paper(group, folder)
            _write(folder / f"{group.name}.html", "paper", page=page)
    except Exception as error:  # what foreign files can hold has no end, and is not to be the end of the report
        shutil.rmtree(folder / group.name, ignore_errors=True)
        return error
    return page


def _paper(group: Group, folder: Path) -> Values:
    """Everything the page of one group shows; writes its downloads."""
    paper, files = load_paper(group.slug), folder / group.name
    rows = prepared(group.results)  # once, not for every table
    tables = [compare_table(group.slug, name, rows, group.not_run) for name in paper.tables]
    return {
        "paper": paper,
        "group": group,
        "claims": [_claim(record) for record in group.judged.to_dict()],
        "tables": [_table(compared, files) for compared in tables],
        "figures": _figures(group, files),
        "runs": [_run(run, files) for run in group.runs],
        "guide": _guide(group),
        "deviations": _deviations(group.slug),
    }


def _guide(group: Group) -> Markup:
    """The page of advice, where runs have one: as the only run wrote it, or written anew from the rows of all."""
    pages = [path for run in group.runs if os.path.lexists(path := run.folder / "guide.md")]
    if pages[1:]:
        from dialnb.studies.matrix_guide import page

        return markdown_body(page(group))
    return markdown_body("".join(regular(path).read_text("utf-8", "replace") for path in pages))


def _table(compared: Comparison, files: Path) -> Values:
    """A table for the page: rows gathered under their setting, statuses counted, downloads written."""
    table, grid = compared.table, compared.grid
    write_table(compared, files / "tables" / table.id)
    blocks: dict[str, list[Values]] = {}
    reasons = {reason: dict.fromkeys(models) for reason, models in compared.absent.items()}
    substitutes: dict[str, None] = {}
    for row in grid:
        labels = dict(row["labels"])
        model = labels.pop("model")
        heading = " · ".join(labels.pop(name) for name in GROUPING if name in labels)
        blocks.setdefault(heading, []).append({**row, "model": model, "small": ", ".join(labels.values())})
        if row["status"] == NOT_RUN:
            reasons.setdefault(row["note"], {})[model] = None
        if row["status"] == SUBSTITUTE:
            substitutes |= dict.fromkeys(row["note"].split("; "))
        for column, cell in row["cells"].items():
            if cell["status"] == NOT_RUN and row["status"] in (RAN, SUBSTITUTE):
                reasons.setdefault(cell["note"], {})[column] = None
    counts = Counter(row["status"] for row in grid)
    columns = zip(*(row.values for row in table.rows))
    return {
        "table": table,
        "blocks": blocks,
        "numeric": [not any(isinstance(cell, str) for cell in column) for column in columns],
        "counts": counts,
        "partial": any(cell["same"] for row in grid for cell in row["cells"].values()),
        "substitutes": substitutes,
        "reasons": reasons,
    }


def _claim(record: Values) -> Values:
    """A verdict for the page, with the places of its interval on a small axis that has the line in its middle."""
    ends = [record[name] for name in ("low", "high", "estimate")]
    bar = None
    if record["kind"] in ("gain", "ordering", "trend") and None not in ends and record["method"] != PLACE:
        places = [end - record["margin"] for end in ends]
        reach = max(map(abs, places)) or 1.0
        bar = [round(50 + 48 * place / reach, 1) for place in places]
    weak = record["verdict"] in DECIDED and "○" in record["strength"]
    return record | {"bar": bar, "weak": weak}


def _figures(group: Group, files: Path) -> list[Values]:
    """The figures of the latest run, F2 before F10."""
    described = [path for run in group.runs[-1:] for path in run.folder.glob("figures/*.json")]
    described.sort(key=lambda path: re.sub(r"\d+", lambda number: number[0].zfill(9), path.stem))
    pictures = project_root() / "figures" / group.slug if group.record else Path()
    return [_figure(path, files / "figures", pictures) for path in described]


def _figure(path: Path, target: Path, pictures: Path) -> Values:
    """What the page shows of one figure, its files copied, all under the name of its own file; else what is wrong.

    A record keeps its figures as data, and their pictures in another folder; where there is none, it is drawn again.
    """
    name = path.stem
    card = {"name": name, "formats": [], "damage": ""}
    target.mkdir(parents=True, exist_ok=True)
    try:
        about = read_record(path, "figure")
        if about["name"] != name:
            raise DataError(f"{path.name} is of another figure, {about['name']}")
        for kept in [path.with_name(f"{name}.{kind}") for kind in KINDS] + [pictures / f"{name}.png"]:
            if os.path.lexists(kept):
                (target / kept.name).write_bytes(picture(kept))
        if about["function"] and not (target / f"{name}.png").is_file():
            with within(FILE_SECONDS, f"drawing {name}"):
                redraw(path.parent.parent, ["png"], out=target, pattern=glob.escape(name))
    except Exception as error:
        return card | {"damage": shortened(in_words(error))}
    formats = [kind for kind in KINDS if (target / f"{name}.{kind}").is_file()]
    return card | {"caption": about["caption"], "alt": about["alt"], "formats": formats}


def _run(run: Run, files: Path) -> Values:
    """Provenance of one run, its command, and its notebook as a page and as a file."""
    (seed, *joined), record = run.seeds, run.record
    target = make_folder(files / f"seed{seed}")
    links: list[str] = []
    damages: list[str] = []
    for name in KEPT:
        try:
            if os.path.lexists(run.folder / name):
                (target / name).write_bytes(regular(run.folder / name).read_bytes())
                links.append(name)
        except Exception as error:
            damages.append(f"{name} was left out: {in_words(error)}")
    if "notebook.ipynb" in links:
        try:
            with within(FILE_SECONDS, "showing it"):
                body = notebook_body(run.folder / "notebook.ipynb")
            html = re.sub('(?<=src=")data:image/png;base64,([^"]+)', lambda picture: _in_file(picture, target), body)
            _write(
                target / "notebook.html",
                "notebook",
                body=Markup(html),
                title=f"{load_paper(record['slug']).name}, {record['profile']} profile, seed {seed}",
                back=f"../../{files.name}.html",
                root="../../",
            )
        except Exception as error:
            damages.append(f"notebook.ipynb is damaged and has no page here: {in_words(error)}")
    command = ["dialnb", "run", record["slug"], "--profile", record["profile"]]
    for name, value in record.get("set_by_hand", {}).items():
        command += ["--encoder", str(value)] if name == "encoder" else ["--set", f"{name}={value}"]
    shown = {"record": record, "seed": seed, "joined": joined, "links": links, "damage": shortened("; ".join(damages))}
    return shown | {"command": shlex.join(command), "has_notebook": (target / "notebook.html").is_file()}


def _in_file(picture: re.Match[str], folder: Path) -> str:
    """The name of a file that holds the picture, which takes a third more within a page."""
    name = f"{picture.start()}.png"
    (folder / name).write_bytes(b64decode(picture[1]))
    return name


def _deviations(slug: str) -> Markup:
    """The paper's README as HTML: what was reproduced and what differs; images and links into the checkout are cut."""
    path = project_root() / "papers" / slug / "README.md"
    text = path.read_text("utf-8") if path.is_file() else ""
    text = re.sub(r"^# .*\n|!\[[^\]]*\]\([^)]*\)", "", text)
    return markdown_body(re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", text))


def _write(path: Path, template: str, root: str = "", **values: Any) -> Path:
    path.write_text(render(f"{template}.html.j2", "report", root=root, **values), "utf-8")
    return path
