"""`dialnb list` and `dialnb run`: which papers there are, and their notebooks executed headless."""

from __future__ import annotations

import argparse
import os
import signal
import textwrap
import time
from pathlib import Path

from dialnb.commands import count

ALL = "all"


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add both commands."""
    lister = subparsers.add_parser("list", help="the papers, their profiles, and what has run")
    _places(lister)
    lister.set_defaults(run=list_papers)
    parser = subparsers.add_parser(
        "run",
        help="execute papers' notebooks",
        description="Execute notebooks through papermill, each into a folder of its own under --out. Stages that have "
        "run before with the same inputs and code come from the cache; a killed run goes on where it stopped.",
    )
    parser.add_argument("papers", nargs="+", metavar="PAPER", help=f"papers by name, or '{ALL}'")
    add_choices(parser)
    parser.add_argument("--fresh", action="store_true", help="make every stage anew, whatever is in the cache")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and execute nothing")
    parser.add_argument("--help-parameters", action="store_true", help="print what can be set, and execute nothing")
    _places(parser)
    parser.set_defaults(run=run)


def add_choices(parser: argparse.ArgumentParser) -> None:
    """What decides the results of a run."""
    parser.add_argument("--profile", default="quick", help="smoke, quick, gpu or paper (default: quick)")
    parser.add_argument("--seed", type=count(0), default=1, metavar="N", help="default: 1")
    parser.add_argument("--encoder", default="", help="a bundled name, folder or hub id in place of the profile's own")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a parameter; repeatable")


def _places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the run folders (default: runs)")
    parser.add_argument("--project", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")
    parser.add_argument("--notebooks", type=Path, help="folder of the notebooks (default: notebooks/ of the project)")


def list_papers(options: argparse.Namespace) -> int:
    """One paragraph per paper."""
    import yaml

    from dialnb.errors import DataError
    from dialnb.files import read_run
    from dialnb.runs.profiles import known_papers, load_profiles, project

    root = project(options.project)
    records, damaged = {}, []
    for path in sorted(options.out.glob("*/run.json")):
        try:
            records[path.parent.name] = read_run(path.parent)
        except DataError as error:
            damaged.append(str(error))
    for slug in known_papers(root):
        paper = yaml.safe_load((root / "papers" / slug / "paper.yaml").read_text(encoding="utf-8"))
        notebook = (options.notebooks or root / "notebooks") / f"{slug}.ipynb"
        try:
            profiles = ", ".join(load_profiles(slug, root).profiles)
        except DataError:
            profiles = "none yet"
        print(f"{slug:<12} {paper['title']} ({paper['venue']})")
        print(f"{'':<12} profiles: {profiles}; notebook: {'yes' if notebook.is_file() else 'not written yet'}")
        for name, record in records.items():
            if record["slug"] == slug:
                print(f"{'':<12} {name}: {record['status']}, {record['updated'][:16].replace('T', ' ')}")
    print("".join(f"{line}\n" for line in damaged), end="")
    return 0


def run(options: argparse.Namespace) -> int:
    """Check everything, then run; 1 if a notebook failed or, where it was asked for by name, does not exist."""
    from dialnb.runs.planning import check_encoders, describe
    from dialnb.runs.profiles import known_papers, load_profiles, project

    root = project(options.project)
    everything = ALL in options.papers
    slugs = known_papers(root) if everything else list(dict.fromkeys(options.papers))
    if everything and not options.help_parameters:
        slugs = [slug for slug in slugs if (root / "papers" / slug / "profiles.yaml").is_file()] or slugs
    profiles = {slug: load_profiles(slug, root) for slug in slugs}
    if options.help_parameters:
        print("\n\n".join(_parameters(entry) for entry in profiles.values()))
        return 0
    said = {slug: entry.parse(options.set) for slug, entry in profiles.items()}
    settings = {
        slug: entry.resolve(options.profile, options.seed, options.encoder, said[slug])
        for slug, entry in profiles.items()
    }
    if options.dry_run:
        print("\n\n".join(describe(profiles[slug], options.profile, settings[slug]) for slug in slugs))
        return 0
    for slug in slugs:
        check_encoders(profiles[slug], settings[slug])
    return _execute(options, root, slugs, said, everything)


def _execute(options: argparse.Namespace, root: Path, slugs: list[str], said: dict[str, dict], everything: bool) -> int:
    from dialnb.runs.engine import Request, run_all

    if options.fresh:
        os.environ["DIALNB_FRESH"] = str(time.time())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end leaves a record, as Ctrl-C does
    requests = [Request(s, options.profile, options.seed, options.encoder, said[s], options.out) for s in slugs]
    runs = run_all(requests, root, options.notebooks)
    bad = ("failed",) if everything else ("failed", "left out")
    return int(any(run.status in bad for run in runs))


def _parameters(profiles) -> str:
    """Everything that can be set, with type, default per profile and meaning."""
    from dialnb.runs.profiles import SEED, show

    lines = [f"{profiles.slug}: set with --set NAME=VALUE (seed and encoder: --seed, --encoder)"]
    for parameter in (SEED, *profiles.parameters.values()):
        changed = [f"{n}: {show(v[parameter.name])}" for n, v in profiles.profiles.items() if parameter.name in v]
        values = "; ".join([f"default {show(parameter.default)}", *changed])
        lines += [
            f"  {parameter.name}  ({parameter.allowed})",
            *textwrap.wrap(parameter.help, 112, initial_indent="      ", subsequent_indent="      "),
        ]
        lines += [f"      {values}"]
    return "\n".join(lines)
