"""`dialnb init | list | run | matrix | reproduce | report`: the papers, their notebooks without Jupyter, the report."""

from __future__ import annotations

import shutil
import signal
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import Choice, Context, IntRange, argument, command, option, pass_context

from dialnb.commands import PROJECT, together
from dialnb.errors import DataError
from dialnb.files import find_runs, project_root, read_run, read_yaml, runs_in, say

if TYPE_CHECKING:
    from dialnb.runs.profiles import Profiles

ALL = "all"
RUNS = option("--out", type=Path, default="runs", show_default=True, help="folder of the run folders")
NOTEBOOKS = option("--notebooks", type=Path, help="folder of the notebooks (default: notebooks/ of the project)")
choices = together(
    option("--profile", default="quick", show_default=True, help="smoke, quick, gpu or paper"),
    option("--seed", type=IntRange(0), default=1, show_default=True, metavar="N"),
    option("--encoder", default="", help="a bundled name, folder or hub id in place of the profile's own"),
    option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="set a parameter; repeatable"),
    option("--dry-run", is_flag=True, help="print parameters, data and encoders, and execute nothing"),
    RUNS,
)
"""What decides the results of a run, and where they go."""


@command()
@argument("folder", type=Path)
def init(folder: Path) -> None:
    """Lay out the notebooks in a folder of your own.

    Copies notebooks/, papers/ and workflow/ into FOLDER. Commands that run there, or in a folder below, then use these
    copies in place of those that came with the package.
    """
    root, names = project_root(), ("notebooks", "papers", "workflow")
    if there := [name for name in names if (folder / name).exists()]:
        raise DataError(f"{folder} already holds {', '.join(there)}, left as they are; name another folder")
    for name in names:
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    print(f"{folder}: {', '.join(names)}. Go on with: cd {folder} && jupyter lab notebooks")


@command("list")
@RUNS
@PROJECT
@NOTEBOOKS
def list_papers(out: Path, root: Path | None, notebooks: Path | None) -> None:
    """List the papers, their profiles, and what has run."""
    from dialnb.runs.profiles import known_papers, load_profiles

    root = project_root(root)
    records, damaged = {}, []
    for folder in runs_in(out):
        try:
            records[folder.name] = read_run(folder)
        except DataError as error:
            damaged.append(str(error))
    for slug in known_papers(root):
        paper = read_yaml(root / "papers" / slug / "paper.yaml")
        written = ((notebooks or root / "notebooks") / f"{slug}.ipynb").is_file()
        profiles = ", ".join(load_profiles(slug, root).profiles)
        say(f"{slug:<12} {paper['title']} ({paper['venue']})")
        say(f"{'':<12} profiles: {profiles}; notebook: {'yes' if written else 'not written yet'}")
        for name, record in records.items():
            if record["slug"] == slug:
                when = record.get("updated", "")[:16].replace("T", " ")
                say(f"{'':<12} {name}: {record['status']}, {when}")
    for line in damaged:
        say(line)


@command()
@argument("papers", nargs=-1, required=True, metavar="PAPER...")
@choices
@option("--fresh", is_flag=True, help="make every stage again, whatever is in the cache")
@option(
    "--executor", default="", metavar="ADDRESS", help="workers of Dask that make the stages, such as tcp://host:8786"
)
@option("--help-parameters", is_flag=True, help="print what can be set, and execute nothing")
@PROJECT
@NOTEBOOKS
def run(
    papers: Sequence[str],
    profile: str,
    seed: int,
    encoder: str,
    changes: Sequence[str],
    fresh: bool,
    executor: str,
    dry_run: bool,
    help_parameters: bool,
    out: Path,
    root: Path | None,
    notebooks: Path | None,
) -> int:
    """Execute the notebooks of papers.

    Papers are given by name, or as 'all', and run one after the other, each into a folder of its own. Stages that have
    run before with the same inputs and code come from the cache; a killed run goes on where it stopped. The exit code
    is 1 if a notebook failed or, where it was asked for by name, does not exist.
    """
    from dialnb.runs.planning import check_encoders, describe
    from dialnb.runs.profiles import load_profiles

    root = project_root(root)
    slugs = chosen_papers(papers, root)
    loaded = {slug: load_profiles(slug, root) for slug in slugs}
    if help_parameters:
        print("\n\n".join(map(parameters, loaded.values())))
        return 0
    overrides = {slug: profiles.parse(changes) for slug, profiles in loaded.items()}
    settings = {slug: loaded[slug].resolve(profile, seed, encoder, overrides[slug]) for slug in slugs}
    if dry_run:
        print("\n\n".join(describe(loaded[slug], profile, settings[slug]) for slug in slugs))
        return 0
    for slug in slugs:
        check_encoders(loaded[slug], settings[slug])
    from dialnb.runs.engine import Request, run_all

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end leaves a record, as Ctrl-C does
    since = time.time() if fresh else 0.0
    requests = [Request(slug, profile, seed, encoder, overrides[slug], out, since, executor) for slug in slugs]
    runs = run_all(requests, root, notebooks)
    bad = ("failed",) if ALL in papers else ("failed", "left out")
    return int(any(run.status in bad for run in runs))


def chosen_papers(names: Sequence[str], root: Path) -> list[str]:
    """Each paper once, or all that there are."""
    from dialnb.runs.profiles import known_papers

    return known_papers(root) if ALL in names else list(dict.fromkeys(names))


def parameters(profiles: Profiles) -> str:
    """Everything that can be set, with type, default per profile and meaning, as text."""
    from dialnb.runs.profiles import SEED
    from dialnb.training.settings import FIELDS
    from dialnb.typed import show

    lines = [f"{profiles.slug}: set with --set NAME=VALUE (seed and encoder: --seed, --encoder)"]

    def add(title: str, about: str, values: list[str]) -> None:
        lines.append(f"  {title}")
        lines.append(textwrap.indent(textwrap.fill(about, 106), " " * 6))
        lines.append(f"      {'; '.join(values)}")

    for parameter in (SEED, *profiles.parameters.values()):
        name, values = parameter.name, [f"default {show(parameter.default)}"]
        values += [f"{each}: {show(changed[name])}" for each, changed in profiles.profiles.items() if name in changed]
        add(f"{name}  ({parameter.takes})", parameter.help, values)
    for row, about in profiles.train.items():
        values = ["default as printed"]
        for each, changed in profiles.profiles.items():
            own = [f"{name.rpartition('.')[2]} {show(changed[name])}" for name in changed if f"train.{row}." in name]
            values += [f"{each}: {', '.join(own)}"] if own else []
        add(f"train.{row}.SETTING  (SETTING: {', '.join(FIELDS)})", about, values)
    return "\n".join(lines)


@command()
@choices
@pass_context
def matrix(context: Context, /, **chosen: Any) -> int:
    """Compare the methods of all papers.

    On equal terms: trains every method from one encoder, on one corpus, with one budget of tokens, asks it the tasks
    of all five papers, and says what to pick for which task. 'dialnb run matrix' is the same with more options.
    """
    return context.invoke(run, papers=("matrix",), **chosen)


@command()
@argument("papers", nargs=-1, metavar="[PAPER]...")
@option("--profile", default="quick", type=Choice(("smoke", "quick", "gpu", "paper")), show_default=True)
@RUNS
@NOTEBOOKS
def reproduce(papers: Sequence[str], profile: str, out: Path, notebooks: Path | None) -> int:
    """Run all notebooks and render the report.

    Of all five papers, unless some are named. A notebook that does not exist yet is left out with a line that says so;
    the exit code is 1 when a notebook fails.
    """
    from dialnb.claims.papers import SLUGS
    from dialnb.report import build
    from dialnb.runs.engine import Request, check, run_all

    root = project_root()
    requests = [Request(slug, profile, out=out) for slug in papers or SLUGS]
    for request in requests:
        check(request, root)
    runs = run_all(requests, root, notebooks)
    left_out = {run.slug: run.reason for run in runs if run.status == "left out"}
    page = build([run.notebook.parent for run in runs if run.notebook], out / "report", left_out, runs)
    print(f"Report: {page.absolute().as_uri()}")
    return int(any(run.status == "failed" for run in runs))


@command()
@argument("runs", nargs=-1, type=Path, metavar="[RUN]...")
@option("-o", "--out", type=Path, default="report", show_default=True, help="folder of the site")
def report(runs: Sequence[Path], out: Path) -> None:
    """Write the report of runs as a static site.

    The site opens without network and has every table, figure and claim of the papers with what the runs gave. RUN is
    a run folder, or one that holds some; without it, the runs that the repository keeps in papers/*/results/.
    """
    from dialnb.report import build
    from dialnb.report.gather import recorded_runs

    page = build(find_runs(runs) if runs else recorded_runs(), out)
    print(f"Report: {page.absolute().as_uri()}")


COMMANDS = (init, list_papers, run, reproduce, report, matrix)
