"""`dialnb matrix`: the methods of the five papers on equal terms, and what to pick for which task."""

from __future__ import annotations

import argparse
from pathlib import Path

from dialnb.commands import run as runner

SLUG = "matrix"


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the sub-command: that of `dialnb run matrix`, with the page of advice at the end."""
    parser = subparsers.add_parser(
        "matrix",
        help="compare the methods of the five papers on equal terms",
        description="Train every method from one encoder, on one corpus, with one budget of tokens, ask it the tasks "
        "of all five papers, and say what to pick for which task. 'dialnb run matrix' is the same with more options.",
    )
    runner.add_choices(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and execute nothing")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the run folders (default: runs)")
    parser.set_defaults(run=run, papers=[SLUG], project=None, notebooks=None, fresh=False, help_parameters=False)


def run(options: argparse.Namespace) -> int:
    """Run the notebook, then print its page of advice."""
    from dialnb.runs.profiles import load_profiles
    from dialnb.runs.run import run_name
    from dialnb.studies.matrix_guide import FILE

    code = runner.run(options)
    said = load_profiles(SLUG).parse(options.set)
    page = options.out / run_name(SLUG, options.profile, options.seed, options.encoder, said) / FILE
    if not options.dry_run and code == 0:
        print(f"\n{page.read_text(encoding='utf-8')}")
    return code
