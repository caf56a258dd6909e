"""`dialnb pack`, `export`, `figures`, `merge`, `compare` and `doctor`: what goes before and after a run."""

from __future__ import annotations

import argparse
from pathlib import Path


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the six commands."""
    parser = subparsers.add_parser("pack", help="one archive with all that a machine without network needs")
    parser.add_argument("--papers", nargs="+", required=True, metavar="PAPER", help="papers by name, or 'all'")
    parser.add_argument("--profile", default="gpu", help="default: gpu")
    parser.add_argument("--encoder", default="", help="an encoder in place of the profile's own")
    parser.add_argument(
        "--platform", help="wheel tag of the target, e.g. manylinux_2_28_x86_64 (default: this machine's)"
    )
    parser.add_argument("--python", help="its Python, e.g. 3.12 (default: this one)")
    parser.add_argument("--have", type=Path, help="pip freeze of the target (default: torch and its usual company)")
    parser.add_argument(
        "--without", nargs="*", default=[], metavar="PACKAGE", help="packages to leave out all the same"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="*.tar, *.tar.gz or *.tar.xz")
    parser.add_argument("--project", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")
    parser.set_defaults(run=pack)
    parser = subparsers.add_parser("export", help="copy a trained model out of a run (sentence-transformers folder)")
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("model", metavar="MODEL", help="as in the tables, e.g. DSE")
    parser.add_argument("destination", type=Path, metavar="DEST")
    parser.set_defaults(run=export)
    parser = subparsers.add_parser("figures", help="draw a run's figures again from their stored data")
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("--format", default="png,svg", help="of png, svg and pdf, joined by commas (default: png,svg)")
    parser.add_argument("--style", default="paper", help="paper or slides (default: paper)")
    parser.add_argument("--out", type=Path, help="where to (default: figures/ of the run)")
    parser.set_defaults(run=figures)
    parser = subparsers.add_parser("merge", help="the results of several runs as one tidy table")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table, as CSV")
    parser.set_defaults(run=merge)
    parser = subparsers.add_parser("compare", help="two runs side by side: settings, results, verdicts")
    parser.add_argument("folders", nargs=2, type=Path, metavar="RUN")
    parser.set_defaults(run=compare)
    parser = subparsers.add_parser("doctor", help="what works on this machine, what is missing, how to get it")
    parser.add_argument("--project", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")
    parser.set_defaults(run=doctor)


def pack(options: argparse.Namespace) -> int:
    """Pack, and say how large it is and how to run it."""
    import sys

    from dialnb.runs import pack as packing
    from dialnb.runs.profiles import known_papers, project

    root = project(options.project)
    slugs = known_papers(root) if "all" in options.papers else list(dict.fromkeys(options.papers))
    have = packing.read_have(options.have) if options.have else packing.usual_packages()
    python = options.python or f"{sys.version_info[0]}.{sys.version_info[1]}"
    target = packing.Target(options.platform or packing.host_platform(), python, have)
    made = packing.pack(slugs, options.profile, options.output, root, target, options.without, options.encoder)
    for name, size in made.sizes.items():
        print(f"  {name:<8} {size / 1e6:9,.1f} MB")
    print(f"  packages: {', '.join(f'{name} {version}' for name, version in made.packages.items()) or 'none'}")
    for licence in made.licences:
        print(f"  data under its own licence: {licence}")
    print(f"{made.path}: {made.path.stat().st_size / 1e6:,.1f} MB for {target.platform}, Python {target.python}")
    print(f"Run it there: {made.command}")
    return 0


def export(options: argparse.Namespace) -> int:
    """Copy a model out of the cache."""
    from dialnb.runs.tools import export as copy

    place = copy(options.folder, options.model, options.destination)
    print(f"{place}: load it with dialnb.load_encoder, AutoModel or SentenceTransformer")
    return 0


def figures(options: argparse.Namespace) -> int:
    """Redraw; figures that were handed over ready-made are named."""
    from dialnb.runs.figures import redraw

    formats = [kind.strip().lower() for kind in options.format.split(",") if kind.strip()]
    written, fixed = redraw(options.folder, formats, options.style, options.out)
    print("\n".join(map(str, written)))
    if fixed:
        print(f"cannot be redrawn, only copied (drawn in the notebook itself): {', '.join(fixed)}")
    return 0


def merge(options: argparse.Namespace) -> int:
    """Write the table, and say what is in it."""
    from dialnb.report.gather import find_runs
    from dialnb.runs.sweep import merge as merged

    folders = find_runs(options.runs)
    rows = merged(folders)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output, index=False)
    print(f"{options.output}: {len(rows):,} results of {len(folders)} runs")
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print the comparison."""
    from dialnb.runs.tools import compare as compared

    print(compared(*options.folders))
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Print every finding; 1 if something that is needed is missing."""
    from dialnb.runs.tools import examine

    findings = examine(options.project)
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        print(f"{finding.state:<4}  {finding.subject:<{width}}  {finding.words}")
    bad = sum(finding.state == "bad" for finding in findings)
    print(f"{bad} problem{'' if bad == 1 else 's'}" if bad else "everything that is needed is here")
    return int(bad > 0)
