"""`python -m benchmarks`: the engine against its peers on this machine, one table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from dialnb.files import make_folder
from dialnb.runs.provenance import provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 where a peer is not installed."""
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
    table = run_benchmarks(options.shape, options.batch, options.steps)
    print(table.to_string(index=False, float_format=lambda x: f"{x:,.2f}" if abs(x) < 100 else f"{x:,.0f}", na_rep=""))
    if options.out:
        content = {"provenance": provenance(), "rows": json.loads(table.to_json(orient="records"))}
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"\nwritten to {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
