"""`dialnb report`: the static site of what ran, beside what the papers print and claim."""

from __future__ import annotations

import argparse
from pathlib import Path


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "report",
        help="write the report of runs as a static site",
        description="Write a static site that opens without network: every table, figure and claim of the papers with "
        "what the runs gave. Without RUNS, it reports the runs that the repository keeps in papers/*/results/.",
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("-o", "--out", type=Path, default=Path("report"), help="folder of the site (default: report)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Build the site and say where it is."""
    from dialnb.report import build
    from dialnb.report.gather import find_runs, recorded_runs

    page = build(find_runs(options.runs) if options.runs else recorded_runs(), options.out)
    print(f"Report: {page.absolute().as_uri()}")
    return 0
