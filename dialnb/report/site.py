"""Writes the site: an overview, one page per paper and setting, the executed notebooks, and everything to download."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import mistune
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dialnb import __version__
from dialnb.claims import MARKS, VERDICTS, interval_text
from dialnb.claims.intervals import PLACE
from dialnb.errors import DataError
from dialnb.papers import compare_table, load_paper, project_root
from dialnb.rendering import Comparison
from dialnb.report.gather import Group, gather
from dialnb.report.pages import notebook_body

GROUPING = ("setting", "threshold", "dataset", "split", "approach", "backbone")
"""Row labels under which a table's rows are gathered; the others stand small beside the model."""

ASSETS = ("style.css", "report.js")


def build(runs: Sequence[Path], folder: Path, left_out: Mapping[str, str] | None = None) -> Path:
    """Write the report of these run folders into `folder` (made anew) and return its first page.

    `left_out` says, for papers without a run, why there is none.
    """
    groups = gather(runs)
    if folder.exists() and any(folder.iterdir()) and not (folder / ASSETS[1]).is_file():
        raise DataError(f"{folder} holds files that are no report; name an empty folder, or one that a report made")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ASSETS:
        shutil.copyfile(Path(__file__).parent / name, folder / name)
    views = []
    for group in groups:
        _say(f"report: {group.name}")
        view = _paper_view(group, folder)
        views.append(view)
        _write(folder / f"{group.name}.html", "paper", page=view, root="")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    papers = [view for view in _main(views) if not view["paper"].own]
    total = {verdict: sum(view["counts"][verdict] for view in papers) for verdict in VERDICTS}
    values = {"pages": views, "main": _main(views), "total": total, "made": made, "left_out": left_out or {}}
    return _write(folder / "index.html", "index", root="", **values)


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
        "seeds": sorted({run.get("parameters", {}).get("seed") for run in group.runs} - {None}),
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
    return record | {"mark": MARKS[record["verdict"]], "text": interval_text(record), "bar": bar}


def _figures(group: Group, files: Path) -> list[dict[str, Any]]:
    """Figures of the latest run, copied; formats that it does not hold are drawn where the figure knows how."""
    if not group.folders:
        return []
    source, target = group.folders[-1] / "figures", files / "figures"
    if not source.is_dir():
        return []
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.json"))
    abouts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(source.glob("*.json"))]
    if any((about["function"] or "").startswith("dialnb.") for about in abouts):
        from dialnb.runs.figures import FORMATS, redraw

        lacking = [kind for kind in FORMATS if not any(source.glob(f"*.{kind}"))]
        redraw(group.folders[-1], lacking, out=target)
    found = []
    for about in sorted(abouts, key=lambda about: _natural(about["name"])):
        formats = [
            kind for kind in ("svg", "pdf", "png", "csv", "csv.xz") if (target / f"{about['name']}.{kind}").is_file()
        ]
        stem = f"{files.name}/figures/{about['name']}"
        found.append({**about, "stem": stem, "formats": formats})
    return found


def _run_view(run: dict[str, Any], path: Path, files: Path, folder: Path) -> dict[str, Any]:
    """Provenance of one run, its command, and its notebook as a page and as a file."""
    seed = run.get("parameters", {}).get("seed", 1)
    target = files / f"seed{seed}"
    target.mkdir(parents=True, exist_ok=True)
    links = {}
    for name in ("run.json", "results.csv", "results.csv.xz", "claims.json", "ro-crate-metadata.json", "notebook.ipynb",
                 "log.txt"):  # fmt: skip
        if (path / name).is_file():
            shutil.copyfile(path / name, target / name)
            links[name] = f"{files.name}/seed{seed}/{name}"
    page = None
    if "notebook.ipynb" in links:
        page = f"{files.name}/seed{seed}/notebook.html"
        body = Markup(notebook_body(path / "notebook.ipynb"))  # scripts and loads from outside are cut
        title = f"{load_paper(run['slug']).name}, {run['profile']} profile, seed {seed}"
        _write(folder / page, "notebook", title=title, body=body, back=f"../../{files.name}.html", root="../../")
    options = [
        f"--set {key}={value}" for key, value in run.get("set_by_hand", {}).items() if key not in ("seed", "encoder")
    ]
    encoder = [f"--encoder {run['set_by_hand']['encoder']}"] if "encoder" in run.get("set_by_hand", {}) else []
    command = " ".join(["dialnb run", run["slug"], f"--profile {run['profile']} --seed {seed}", *encoder, *options])
    return {"record": run, "seed": seed, "links": links, "page": page, "command": command, "facts": _facts(run)}


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
    return _markdown(path.read_text(encoding="utf-8")) if path.is_file() else Markup("")


def _markdown(text: str) -> Markup:
    """Markdown as HTML of a page: raw HTML escaped, headings below those of the page, tables that scroll."""
    html = mistune.create_markdown(escape=True, plugins=["table", "strikethrough"])(text)
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
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
