"""`dialnb export | figures | merge | compare`: what goes before and after a run."""

from collections.abc import Sequence
from pathlib import Path

from click import argument, command, option

from dialnb.files import find_runs, make_folder, read_rows, say, table_at


@command()
@argument("run", type=Path)
@argument("model")
@argument("destination", type=Path, metavar="DEST")
@option("--push", metavar="REPO", help="also upload it to this repository of the Hugging Face hub, with your token")
def export(run: Path, model: str, destination: Path, push: str | None) -> None:
    """Copy a trained model out of a run.

    MODEL is named as in the tables, e.g. DSE; DEST becomes a folder that sentence-transformers reads.
    """
    from dialnb.ecosystem import hub
    from dialnb.runs import tools

    with tools.reading(run):
        tools.export(run, model, destination)
        if table_at(run):
            hub.add_results(destination, hub.own_rows(read_rows(run), model), model)
    print(f"{destination}: load it with dialnb.load_encoder, AutoModel or SentenceTransformer")
    if push:
        print(hub.push(destination, push))


@command()
@argument("run", type=Path)
@option("--format", "formats", help="of png, svg and pdf, joined by commas (default: png,svg; of the style acl: pdf)")
@option("--style", default="paper", show_default=True, help="paper, slides, or acl (column width, fonts embedded)")
@option("--out", type=Path, help="where to (default: figures/ of the run)")
def figures(run: Path, formats: str | None, style: str, out: Path | None) -> None:
    """Draw a run's figures again from their data."""
    from dialnb.runs.figures import redraw

    formats = formats or ("pdf" if style == "acl" else "png,svg")
    written, fixed = redraw(run, [kind.strip().lower() for kind in formats.split(",") if kind.strip()], style, out)
    say("\n".join(map(str, written)))
    if fixed:
        say(f"cannot be redrawn, only copied (drawn in the notebook itself): {', '.join(fixed)}")


@command()
@argument("runs", nargs=-1, required=True, type=Path, metavar="RUN...")
@option("-o", "--output", type=Path, required=True, help="the table, as CSV")
def merge(runs: Sequence[Path], output: Path) -> None:
    """Write results of runs as one tidy table.

    RUN is a run folder, or one that holds some.
    """
    from dialnb.runs import tools

    folders = find_runs(runs)
    with tools.reading(*folders):
        rows = tools.merge(folders)
    rows.to_csv(make_folder(output.parent) / output.name, index=False)
    print(f"{output}: {len(rows):,} results of {len(folders)} runs")


@command()
@argument("first", type=Path, metavar="RUN")
@argument("second", type=Path, metavar="RUN")
def compare(first: Path, second: Path) -> None:
    """Show two runs side by side.

    Their settings, results and verdicts, where they differ.
    """
    from dialnb.runs import tools

    with tools.reading(first, second):
        say(tools.compare(first, second))


COMMANDS = (export, figures, merge, compare)
