"""Writes the site: an overview, one page per paper and setting, the executed notebooks, and everything to download."""

from __future__ import annotations

import glob
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mistune
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dialnb import __version__
from dialnb.claims import FAILS, HOLDS, MARKS, VERDICTS, interval_text, verdict_text
from dialnb.claims.papers import STUDIES, compare_table, load_paper, project_root
from dialnb.claims.rendering import Comparison
from dialnb.errors import DataError
from dialnb.evaluation.intervals import PLACE
from dialnb.report.gather import Damaged, Group, gather, read_record, without_runs
from dialnb.report.pages import check_picture, notebook_body, sanitised
from dialnb.runs.figures import FORMATS, redraw

GROUPING = ("setting", "threshold", "dataset", "split", "approach", "backbone")
"""Row labels under which a table's rows are gathered; the others stand small beside the model."""

ASSETS = ("style.css", "report.js")
FIGURE = {"name": str, "caption": str, "alt": str, "function": str | None}
"""What the report reads of the file that describes a figure."""


def build(runs: Sequence[Path], folder: Path, left_out: Mapping[str, str] | None = None) -> Path:
    """Write the report of these run folders into `folder` (made anew) and return its first page.

    `left_out` says, for papers without a run, why there is none.
    """
    damaged: list[Damaged] = []
    groups = gather(runs, damaged)
    if folder.exists() and any(folder.iterdir()) and not (folder / ASSETS[1]).is_file():
        raise DataError(f"{folder} holds files that are no report; name an empty folder, or one that a report made")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ASSETS:
        shutil.copyfile(Path(__file__).parent / name, folder / name)
    views = [view for group in groups if (view := _page(group, folder, damaged))]
    views += [_page(group, folder, damaged) for group in without_runs(view["group"] for view in views)]
    views.sort(key=lambda view: STUDIES.index(view["paper"].slug))
    for damage in damaged:
        _say(f"report: left out {damage}")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    papers = [view for view in _main(views) if not view["paper"].own]
    total = {verdict: sum(view["counts"][verdict] for view in papers) for verdict in VERDICTS}
    claims = [claim for view in papers for claim in view["claims"]]
    decided = [claim for claim in claims if claim["verdict"] in (HOLDS, FAILS)]
    trust = {"decided": len(decided), "solid": sum(not claim["weak"] for claim in decided)}
    trust["limits"] = Counter(claim["label"] for claim in claims if claim["qualifier"]).most_common()
    values = {
        "pages": views,
        "main": _main(views),
        "total": total,
        "trust": trust,
        "made": made,
        "left_out": left_out or {},
    }
    return _write(folder / "index.html", "index", root="", damaged=damaged, **values)


def _page(group: Group, folder: Path, damaged: list[Damaged]) -> dict[str, Any] | None:
    """Write the page of one group and return what it shows; runs that cannot be shown are added to those `damaged`."""
    _say(f"report: {group.name}")
    try:
        view = _paper_view(group, folder)
        _write(folder / f"{group.name}.html", "paper", page=view, root="")
    except Exception as error:  # what foreign files can hold has no end, and is not to be the end of the report
        if not group.runs:
            raise
        shutil.rmtree(folder / group.name, ignore_errors=True)
        damaged += [Damaged(path, f"its files do not fit together: {error}") for path in group.folders]
        return None
    return view


def _main(views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The most telling page of each paper."""
    return list({view["paper"].slug: view for view in reversed(views)}.values())[::-1]


def _paper_view(group: Group, folder: Path) -> dict[str, Any]:
    """Everything the page of one group shows; writes its downloads."""
    paper, files = load_paper(group.slug), folder / group.name
    judged = group.judged
    tables = [
        _table_view(compare_table(group.slug, table, group.results, group.not_run), files) for table in paper.tables
    ]
    claims = [_claim_view(record) for record in judged.to_dict()]
    return {
        "name": group.name,
        "paper": paper,
        "group": group,
        "counts": judged.counts,
        "claims": claims,
        "judged": [claim for claim in claims if claim["verdict"] != "not run"],
        "tables": tables,
        "figures": _figures(group, files),
        "runs": [_run_view(run, path, files, folder) for run, path in zip(group.runs, group.folders)],
        "guide": _guide(group),
        "deviations": _deviations(group.slug),
        "hardware": _hardware(group.runs[-1]) if group.runs else "",
        "when": str(group.runs[-1].get("updated", ""))[:10] if group.runs else "",
        "seeds": sorted({run["parameters"].get("seed") for run in group.runs} - {None}),
    }


def _table_view(compared: Comparison, files: Path) -> dict[str, Any]:
    """A table for the page: rows gathered under their setting, statuses counted, downloads written."""
    table, stem = compared.table, files / "tables" / compared.table.id
    stem.parent.mkdir(parents=True, exist_ok=True)
    for suffix, text in (("csv", compared.csv()), ("md", compared.markdown()), ("tex", compared.latex())):
        stem.with_suffix(f".{suffix}").write_text(text, encoding="utf-8")
    blocks: dict[str, list[dict[str, Any]]] = {}
    grid = compared.grid
    for row in grid:
        labels = row["labels"]
        heading = " · ".join(labels[name] for name in GROUPING if name in labels)
        small = [text for name, text in labels.items() if name not in (*GROUPING, "model")]
        blocks.setdefault(heading, []).append(row | {"model": labels["model"], "small": ", ".join(small)})
    numeric = [all(not isinstance(row.values[i], str) for row in table.rows) for i in range(len(table.columns))]
    statuses = [row["status"] for row in grid]
    ran = sum(status in ("ran", "substitute") for status in statuses)
    counts = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
    reasons: dict[str, list[str]] = {}
    substitutes: list[str] = []
    for row in grid:
        if row["status"] == "not run":
            reasons.setdefault(row["note"], []).append(row["labels"]["model"])
            continue
        substitutes += row["note"].split("; ") if row["status"] == "substitute" else []
        for column, cell in row["cells"].items():
            if cell["status"] == "not run" and row["status"] in ("ran", "substitute"):
                reasons.setdefault(cell["note"], []).append(column)
    return {
        "table": table,
        "blocks": blocks,
        "numeric": numeric,
        "ran": ran,
        "counts": counts,
        "partial": any(cell["same"] for row in grid for cell in row["cells"].values()),
        "substitutes": list(dict.fromkeys(substitutes)),
        "reasons": {reason: list(dict.fromkeys(names)) for reason, names in reasons.items()},
        "files": [f"{files.name}/tables/{table.id}.{suffix}" for suffix in ("csv", "md", "tex")],
    }


def _claim_view(record: dict[str, Any]) -> dict[str, Any]:
    """A verdict for the page, with the places of its interval on a small axis that has the line in its middle."""
    places = [record[name] for name in ("low", "high", "estimate")]
    bar = None
    if record["kind"] in ("gain", "ordering", "trend") and None not in places and record["method"] != PLACE:
        places = [place - record["margin"] for place in places]
        reach = max(map(abs, places)) or 1.0
        bar = {name: round(50 + 48 * place / reach, 1) for name, place in zip(("low", "high", "mean"), places)}
    shown = {"mark": MARKS[record["verdict"]], "label": verdict_text(record), "text": interval_text(record), "bar": bar}
    return record | shown | {"weak": record["verdict"] in (HOLDS, FAILS) and "○" in record["strength"]}


def _figures(group: Group, files: Path) -> list[dict[str, Any]]:
    """Figures of the latest run, copied; formats that it does not hold are drawn where the figure knows how."""
    found = sorted(group.folders[-1].glob("figures/*.json"), key=lambda path: _natural(path.stem)) if group.runs else []
    if not found:
        return []
    target = files / "figures"
    target.mkdir(parents=True)
    lacking = [kind for kind in FORMATS if not any(found[0].parent.glob(f"*.{kind}"))]
    return [_figure(path, target, lacking) for path in found]


def _figure(path: Path, target: Path, lacking: list[str]) -> dict[str, Any]:
    """What the page shows of one figure, its files copied, all under the name of its own file; else what is wrong."""
    name, kinds = path.stem, ("svg", "pdf", "png", "csv", "csv.xz")
    view = {"name": name, "stem": quote(f"{target.parent.name}/figures/{name}"), "formats": [], "damage": ""}
    try:
        about = read_record(path, FIGURE)
        if about["name"] != name:
            raise DataError(f"{path.name} is of another figure, {about['name']}")
        for kept in (path.with_name(f"{name}.{kind}") for kind in kinds):
            if kept.is_file():
                check_picture(kept)
                shutil.copyfile(kept, target / kept.name)
        if about["function"]:
            redraw(path.parent.parent, lacking, out=target, pattern=glob.escape(name))
    except Exception as error:
        return view | {"damage": str(error)}
    formats = [kind for kind in kinds if (target / f"{name}.{kind}").is_file()]
    return view | {"caption": about["caption"], "alt": about["alt"], "formats": formats}


def _run_view(run: dict[str, Any], path: Path, files: Path, folder: Path) -> dict[str, Any]:
    """Provenance of one run, its command, and its notebook as a page and as a file."""
    seed = run["parameters"].get("seed", 1)
    target = files / f"seed{seed}"
    target.mkdir(parents=True, exist_ok=True)
    links = {}
    for name in ("run.json", "results.csv", "results.csv.xz", "claims.json", "ro-crate-metadata.json", "notebook.ipynb",
                 "log.txt"):  # fmt: skip
        if (path / name).is_file():
            shutil.copyfile(path / name, target / name)
            links[name] = f"{files.name}/seed{seed}/{name}"
    page, damage = None, ""
    if "notebook.ipynb" in links:
        title = f"{load_paper(run['slug']).name}, {run['profile']} profile, seed {seed}"
        try:
            page, body = f"{files.name}/seed{seed}/notebook.html", notebook_body(path / "notebook.ipynb")
            _write(folder / page, "notebook", title=title, body=body, back=f"../../{files.name}.html", root="../../")
        except Exception as error:
            page, damage = None, f"notebook.ipynb is damaged and has no page here: {error}"
    by_hand = {key: value for key, value in run.get("set_by_hand", {}).items() if key != "seed"}
    command = ["dialnb", "run", run["slug"], "--profile", run["profile"], "--seed", str(seed)]
    command += ["--encoder", str(by_hand.pop("encoder"))] if "encoder" in by_hand else []
    command += [part for key, value in by_hand.items() for part in ("--set", f"{key}={value}")]
    view = {"record": run, "seed": seed, "links": links, "page": page, "damage": damage, "facts": _facts(run)}
    return view | {"command": shlex.join(command)}


def _facts(run: dict[str, Any]) -> list[tuple[str, str]]:
    """The provenance that a reader asks for first; all of it is in run.json."""
    code, packages = run.get("code", {}), run.get("packages", {})
    commit = str(code.get("commit") or "not a git checkout")[:12] + (
        ", with local changes" if code.get("dirty") else ""
    )
    versions = ", ".join(
        f"{name} {packages[name]}" for name in ("python", "torch", "transformers") if packages.get(name)
    )
    data = ", ".join(" ".join(filter(None, [entry["name"], entry.get("variant")])) for entry in run.get("data", ()))
    memory = run.get("peak_memory_gb") or run.get("peak_memory")
    facts = {
        "Status": " ".join(filter(None, [run.get("status"), run.get("reason")])),
        "Started": str(run.get("started", "")).replace("T", " ")[:16],
        "Took": f"{run.get('seconds', 0):,.0f} s",
        "Hardware": _hardware(run),
        "Commit": commit,
        "Packages": versions,
        "Encoders": ", ".join(entry["name"] for entry in run.get("encoders", ())),
        "Data": data,
        "Licences": ", ".join(run.get("licences", ())),
        "Determinism": run.get("determinism", ""),
        "Peak memory": str(memory or ""),
    }
    return [(name, text) for name, text in facts.items() if text]


def _hardware(run: dict[str, Any]) -> str:
    found = run.get("hardware", {})
    gpus = [gpu["name"] for gpu in found.get("gpus", ())]
    return ", ".join(gpus) if gpus else f"{found['cores']} CPU cores" if found.get("cores") else ""


def _deviations(slug: str) -> Markup:
    """The paper's README as HTML: what was reproduced and what differs; images and links into the checkout are cut."""
    path = project_root() / "papers" / slug / "README.md"
    if not path.is_file():
        return Markup("")
    text = re.sub(r"^# .*\n", "", path.read_text(encoding="utf-8"))
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    return _markdown(re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", text))


def _guide(group: Group) -> Markup:
    """The page of advice that the latest run wrote, where there is one."""
    path = group.folders[-1] / "guide.md" if group.folders else Path()
    return _markdown(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else Markup("")


def _markdown(text: str) -> Markup:
    """Markdown as HTML of a page: raw HTML escaped, headings below those of the page, tables that scroll."""
    html = str(sanitised(mistune.create_markdown(escape=True, plugins=["table", "strikethrough"])(text)))
    html = re.sub(r"<th(?=[ >])", '<th scope="col"', re.sub(r"<(/?)h[12]>", r"<\1h3>", html))
    scroll = '<div class="scroll" role="region" aria-label="Table of the paper\'s page" tabindex="0"><table>'
    return Markup(html.replace("<table>", scroll).replace("</table>", "</table></div>"))  # its raw HTML is escaped


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dialnb.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"MARKS": MARKS, "VERDICTS": VERDICTS, "version": __version__}
    return environment


def _write(path: Path, template: str, **values: Any) -> Path:
    path.write_text(_environment().get_template(f"{template}.html.j2").render(**values), encoding="utf-8")
    return path


def _natural(name: str) -> list[Any]:
    """F2 before F10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
