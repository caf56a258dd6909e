"""`dialnb diaeval ENCODER`: the DiaEval benchmark for any encoder, beside what the WMDC paper prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import Choice, IntRange, argument, command, option

from dialnb.commands import JSON

if TYPE_CHECKING:
    import pandas as pd

TABLES = {
    "T2": "Action prediction, F1 in %",
    "T3": "Dialogue inference, accuracy in %",
    "T4": "Response retrieval, accuracy in %",
}
DATA = "bundled data with stand-ins, public copies, or official releases"


@command()
@argument("encoder")
@option("--data", default="bundled", type=Choice(("bundled", "sources", "official")), show_default=True, help=DATA)
@option("--limit", type=IntRange(10), metavar="N", help="at most N validation and N test items per dataset")
@option("--train-limit", type=IntRange(10), metavar="N", help="at most N training items per dataset")
@option("--lists", "groups", type=IntRange(2), metavar="N", help="rank the candidates of at most N dialogues")
@JSON
@option("-o", "--out", type=Path, metavar="FILE", help="also write the tidy rows as CSV, after every dataset")
def diaeval(encoder: str, data: str, as_json: bool, out: Path | None, **limits: Any) -> None:
    """Score an encoder on the DiaEval benchmark.

    Its tasks are actions, inference and retrieval with a frozen encoder. ENCODER is a bundled name, a
    SentenceTransformer or model folder, or a hub id; its scores are printed beside the rows of the paper. ± is the
    95 % interval over ten groups of test dialogues. Nothing but the package is needed with --data bundled.
    """
    from dialnb.claims.papers import load_cells
    from dialnb.evaluation.diaeval import run_diaeval
    from dialnb.evaluation.foreign import as_encoder
    from dialnb.files import make_folder
    from dialnb.models.places import encoder_name

    load_cells("wmdc")  # the tables are printed beside the paper's: without those, do not begin
    if out:
        make_folder(out.parent)

    def keep(rows: pd.DataFrame) -> None:
        if out:
            rows.assign(encoder=encoder_name(encoder)).to_csv(out, index=False)

    def progress(line: str) -> None:
        print(f"… {line}", file=sys.stderr, flush=True)

    loaded = as_encoder(encoder)
    rows = run_diaeval(loaded, data, progress=progress, keep=keep, **limits).assign(encoder=loaded.name)
    if as_json:
        print(rows.to_json(orient="records", lines=True), end="")
        return
    for table, title in TABLES.items():
        shown, notes = beside_the_paper(rows, table, f"{loaded.name.rpartition('/')[2]} (here)")
        print(f"{title} ({table} of the paper)\n\n{shown.to_string()}\n")
        print("".join(f"  {note}\n" for note in notes))
    for what, reason in rows.attrs["not_run"].items():
        print(f"Not run: {what} ({reason})")


def beside_the_paper(rows: pd.DataFrame, table: str, name: str) -> tuple[pd.DataFrame, list[str]]:
    """The printed rows of a table, then ours under ``name`` and the majority label; and what stands in for what."""
    import pandas as pd

    from dialnb.claims.papers import compare_table

    own = rows[rows["table"] == table]
    model = own["protocol"].map(lambda protocol: "majority label (here)" if protocol == "floor" else name)
    found = compare_table("wmdc", table, own.assign(model=model, protocol="paper")).rows
    here = found["seeds"] > 0
    ours = found["ours"].map("{:.1f}".format) + found["half"].map(lambda half: f" ± {half:.1f}" if half == half else "")
    text = ours.where(here, found["published"].map(lambda value: "–" if pd.isna(value) else f"{value}"))
    shown = found.assign(text=text).pivot_table("text", "model", "column", aggfunc="first", sort=False)
    shown.columns.name = shown.index.name = None
    notes = "; ".join(found.loc[here, "note"]).split("; ")
    return shown, [note for note in dict.fromkeys(notes) if note and not note.startswith("encoder ")]


COMMANDS = (diaeval,)
