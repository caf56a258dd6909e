"""`python -m benchmarks`: the engine against its peers on this machine, a table for each comparison."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from dialnb.files import make_folder, write_json
from dialnb.runs.provenance import provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each table when it is measured; the exit code is 1 where a peer is not installed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--shape", help="mini, small, medium or base (default: base on a GPU, mini on a CPU)")
    parser.add_argument("--batch", type=int, help="pairs per step (default: 1024 on a GPU, 128 on a CPU)")
    parser.add_argument("--steps", type=int, help="timed steps (default: 200 on a GPU, 12 on a CPU)")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="also write rows and provenance as JSON")
    options = parser.parse_args(arguments)
    if lacking := [name for name in ("datasets", "sentence_transformers") if find_spec(name) is None]:
        names = " and ".join(lacking).replace("_", "-")
        print(f"the peers are not all here ({names}): pip install 'dialnb[bench]'", file=sys.stderr)
        return 1
    from benchmarks.engine import run_benchmarks

    if options.out:
        make_folder(options.out.parent)
    rows = []
    for table in run_benchmarks(options.shape, options.batch, options.steps):
        numbers = "{:,.2f}".format
        shown = table.to_string(index=False, float_format=numbers, na_rep="")
        print(shown, end="\n\n", flush=True)
        rows += json.loads(table.to_json(orient="records"))
        if options.out:
            write_json(options.out, {"provenance": provenance(), "rows": rows})
    if options.out:
        print(f"written to {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
