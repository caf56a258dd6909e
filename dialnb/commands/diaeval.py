"""`dialnb diaeval ENCODER`: the DiaEval benchmark for any encoder, beside what the WMDC paper prints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dialnb.commands import count

if TYPE_CHECKING:
    import pandas as pd

TABLES = {"T2": "Action prediction, F1 in %", "T3": "Dialogue inference, accuracy in %",
          "T4": "Response retrieval, accuracy in %"}  # fmt: skip


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "diaeval",
        help="the DiaEval benchmark: actions, inference and retrieval with a frozen encoder",
        description="Score an encoder on DiaEval and print it beside the rows of the paper. ± is the 95 % interval "
        "over ten groups of test dialogues. Nothing but the package is needed with --data bundled.",
    )
    parser.add_argument("encoder", metavar="ENCODER", help="bundled name, SentenceTransformer or model folder, hub id")
    parser.add_argument("--data", default="bundled", choices=("bundled", "sources", "official"),
                        help="bundled data with stand-ins, public copies, or official releases")  # fmt: skip
    parser.add_argument(
        "--limit", type=count(10), metavar="N", help="at most N validation and N test items per dataset"
    )
    parser.add_argument("--train-limit", type=count(10), metavar="N", help="at most N training items per dataset")
    parser.add_argument("--lists", type=count(2), metavar="N", help="rank the candidates of at most N dialogues")
    parser.add_argument("--json", action="store_true", help="tidy rows for machines, one JSON object a line")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="also write the tidy rows as CSV")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score and print; with a file, write what there is after every dataset."""
    from dialnb.claims.papers import load_cells
    from dialnb.evaluation.diaeval import run_diaeval
    from dialnb.files import check_writable
    from dialnb.models.encoder import load_encoder
    from dialnb.models.places import encoder_name

    load_cells("wmdc")  # the tables are printed beside the paper's: without those, do not begin
    if options.out:
        check_writable(options.out)

    def keep(rows: pd.DataFrame) -> None:
        if options.out:
            rows.assign(encoder=encoder_name(options.encoder)).to_csv(options.out, index=False)

    encoder = load_encoder(options.encoder)
    rows = run_diaeval(
        encoder, options.data, limit=options.limit, train_limit=options.train_limit,
        groups=options.lists, progress=lambda line: print(f"… {line}", file=sys.stderr, flush=True), keep=keep,
    )  # fmt: skip
    rows = rows.assign(encoder=encoder.name)
    if options.json:
        print(rows.to_json(orient="records", lines=True), end="")
        return 0
    name = f"{encoder.name.rpartition('/')[2]} (here)"
    for table, title in TABLES.items():
        shown, notes = beside_the_paper(rows, table, name)
        print(f"{title} ({table} of the paper)\n\n{shown.to_string()}\n")
        for note in notes:
            print(f"  {note}")
        print()
    for what, reason in rows.attrs["not_run"].items():
        print(f"Not run: {what} ({reason})")
    return 0


def beside_the_paper(rows: pd.DataFrame, table: str, name: str) -> tuple[pd.DataFrame, list[str]]:
    """The printed rows of a table, then ours under ``name`` and the majority label; and what stands in for what."""
    import pandas as pd

    from dialnb.claims.papers import compare_table

    own = rows[rows["table"] == table]
    named = own["protocol"].map(lambda protocol: "majority label (here)" if protocol == "floor" else name)
    found = compare_table("wmdc", table, own.assign(model=named, protocol="paper")).rows
    here = found["seeds"] > 0
    ours = found["ours"].map("{:.1f}".format) + found["half"].map(lambda half: f" ± {half:.1f}" if half == half else "")
    text = ours.where(here, found["published"].map(lambda value: "–" if pd.isna(value) else f"{value}"))
    shown = found.assign(text=text).pivot_table("text", "model", "column", aggfunc="first", sort=False)
    notes = dict.fromkeys(note for said in found.loc[here, "note"] for note in said.split("; ") if note)
    shown.columns.name = shown.index.name = None
    return shown, [note for note in notes if not note.startswith("encoder ")]
