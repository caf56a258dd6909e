"""`dialnb init FOLDER`: the notebooks and papers as files of one's own, to open, change and run."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "init",
        help="lay out the notebooks and papers in a folder of your own",
        description="Copy notebooks/, papers/ and workflow/ into FOLDER. Commands that run there, or in a folder "
        "below, then use these copies in place of those that came with the package.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Copy what is not there yet, and say what to do with it."""
    from dialnb.claims.papers import project_root
    from dialnb.errors import DataError

    root, names = project_root(), ("notebooks", "papers", "workflow")
    if there := [name for name in names if (options.folder / name).exists()]:
        raise DataError(f"{options.folder} already holds {', '.join(there)}, left as they are; name another folder")
    for name in names:
        shutil.copytree(root / name, options.folder / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    print(f"{options.folder}: {', '.join(names)}. Go on with: cd {options.folder} && jupyter lab notebooks")
    return 0
