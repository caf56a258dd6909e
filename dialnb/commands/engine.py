"""`dialnb corpus | train | evaluate | diaeval`: the engine without a notebook."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import Choice, IntRange, argument, command, option

from dialnb.commands import JSON, together
from dialnb.errors import BadParameter, DataError, check_known
from dialnb.files import Values, make_folder, write_json

if TYPE_CHECKING:
    import pandas as pd

    from dialnb.data import Conversation, Dataset
    from dialnb.models.encoder import Encoder
    from dialnb.models.selector import Selector
    from dialnb.training.loop import TrainingResult

COLUMN = option(
    "--column",
    "columns",
    multiple=True,
    metavar="OURS=THEIRS",
    help="what your own file calls a column, such as text=Utterance",
)


CORPUS = "a collection, a file made by 'dialnb corpus', or your own .csv or .jsonl of dialogues or utterances"
training = together(
    option("--corpus", required=True, help=CORPUS),
    option("--only", metavar="COLLECTION", help="use only this collection's parts of the corpus file"),
    COLUMN,
    option("-o", "--out", required=True, type=Path, metavar="FOLDER"),
    option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="change a training setting"),
)


@command()
@argument("collection")
@option("-o", "--out", required=True, type=Path, metavar="FILE")
def corpus(collection: str, out: Path) -> None:
    """Write a collection of dialogues to a file.

    COLLECTION is todbert, redistributable, train-splits, reachable or chinese.
    """
    from dialnb.data import corpora

    written = corpora.write_corpus(out, corpora.conversations(corpora.collection(collection)))
    print(f"{out}: {written:,} dialogues, {out.stat().st_size / 1e6:.1f} MB")


@command()
@argument("recipe")
@training
@option("--encoder", default="mini", show_default=True, help="bundled name, folder or hub id")
@option("--cap", type=IntRange(1), metavar="N", help="at most about N utterances of every corpus")
@option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="an option of the recipe, such as temperature=0.1, form=plain or, of masked words, held_out=0.01",
)
def train(
    recipe: str,
    corpus: str,
    only: str | None,
    columns: Sequence[str],
    out: Path,
    changes: Sequence[str],
    encoder: str,
    cap: int | None,
    options: Sequence[str],
) -> None:
    """Train an encoder by a recipe of the papers.

    RECIPE is for example DSE, SimCSE, TOD-BERT, WMDC, TaDSE, DialogueCSE, Siamese or UMS. UMS gives a cross-encoder:
    an encoder with heads that score a reply together with its context.
    """
    import torch

    from dialnb.data.corpora import capped
    from dialnb.data.own import is_own
    from dialnb.examples.own import augmentation_of
    from dialnb.models.encoder import load_encoder
    from dialnb.models.layout import LAID_OUT
    from dialnb.models.saving import check_place
    from dialnb.runs.profiles import named_values
    from dialnb.training.recipes import fit, get_recipe

    chosen, given = get_recipe(recipe), {key: _value(text) for key, text in named_values(options, "--option").items()}
    check_place(out)
    filled = chosen.paper == "tadse"
    if filled and not is_own(corpus):
        raise BadParameter(f"{chosen.name} learns from utterances with slots: give a .csv, .tsv or .jsonl of your own")
    settings = chosen.settings if torch.cuda.is_available() else replace(chosen.settings, precision="float32")
    settings, work = change(settings, changes), checkpoints(out)
    model = load_encoder(encoder)
    start, family = model.name, model.transformer.config.model_type
    chosen.rehearse(model, given)  # refuses bad options before the data are read
    dialogues = conversations(corpus, only, columns)
    if cap:
        dialogues = capped(dialogues, cap)
    data = [augmentation_of(own_data(corpus, columns))] if filled else dialogues
    made = fit(chosen, model, data, settings, work, work, given)
    model.name = out.name
    what = (
        f"Trained by the {chosen.name} recipe from the encoder `{start}` with dialnb. {model.pooling.title()} pooling."
    )
    if model.transformer.config.model_type != family:
        what += f" {LAID_OUT}"
    save(made.model, out, made.result, dialogues, what, asdict(settings))


@command()
@argument("encoders", nargs=-1, required=True, metavar="ENCODER...")
@option("--data", type=Path, metavar="FILE", help="your own .csv or .jsonl instead of the bundled data")
@option(
    "--tasks", type=Choice(["adversarial"]), help="UMS' adversarial test on lists of replies; cross-encoders as well"
)
@option(
    "--precision",
    type=Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="of the computation of encoders and selectors; bfloat16 is faster on a GPU and on CPUs that multiply in it, "
    "and moves scores by about a thousandth; a cross-encoder with a classifier stays in float32",
)
@COLUMN
@JSON
def evaluate(
    encoders: Sequence[str],
    data: Path | None,
    tasks: str | None,
    precision: str,
    columns: Sequence[str],
    as_json: bool,
) -> None:
    """Score encoders, or selectors of replies.

    Without --data in few-shot intents, else by the test that fits your file. ENCODER is a bundled name, a folder or a
    hub id; a selector of 'dialnb train UMS' or a cross-encoder reads replies together with their context.
    """
    import pandas as pd
    import torch

    from dialnb.evaluation import bundled, own
    from dialnb.models.places import encoder_name

    if tasks and not data:
        raise BadParameter("--tasks adversarial asks about lists of replies of your own: name their file with --data")
    load: Any = own.encoder_in
    judge: Any = own.evaluate_own
    records: Any
    if not data:
        records, judge = bundled.intent_sets(), bundled.intent_scores
    elif (records := own_data(data, columns)).table.kind in own.LISTS or tasks:
        load, judge = own.reply_scorer, own.adversarial_scores if tasks else own.evaluate_lists
    elif records.table.kind == "IntentUtterance" and set(records.column("split")) == {"train"}:
        print("dialnb: no split 'test' in the file; a fifth of every intent is held out", file=sys.stderr)
        records = own_data(data, columns, held_out=0.2)
    models = [load(name, getattr(torch, precision)) for name in encoders]
    names = [*map(encoder_name, encoders)]
    parts = [judge(model, records).assign(encoder=name) for name, model in zip(names, models)]
    if as_json:
        print(pd.concat(parts).to_json(orient="records", lines=True), end="")
    elif data:
        print(f"{records!r}\n\n{own.summary_own(pd.concat(parts)).round(3).to_string()}")
    else:
        print(
            "Prototype accuracy in %, bundled test sets, mean of 10 seeds; ± is the 95 % interval of Ave over seeds\n"
        )
        print(pd.concat(map(bundled.intent_summary, parts), keys=names, names=["encoder"]).round(2).to_string())


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
@option(
    "--train-limit",
    type=IntRange(10),
    default=3000,
    show_default=True,
    metavar="N",
    help="at most N training items per dataset; with more than there are, all",
)
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

    from dialnb.claims.comparison import compare_table
    from dialnb.claims.rendering import SUBSTITUTE

    own = rows[rows["table"] == table]
    model = own["protocol"].map(lambda protocol: "majority label (here)" if protocol == "floor" else name)
    shown = {}
    notes: dict[str, None] = {}
    for row in compare_table("wmdc", table, own.assign(model=model, protocol="paper")).grid:
        cells = {column: cell["ours"] or cell["paper"] for column, cell in row["cells"].items()}
        shown[row["labels"]["model"]] = cells
        if row["status"] == SUBSTITUTE:
            notes |= dict.fromkeys(row["note"].split("; "))
    return pd.DataFrame(shown).T, [note for note in notes if not note.startswith("encoder ")]


def change(settings: Any, changes: Sequence[str]) -> Any:
    """Training settings with ``key=value`` changes applied, each read in the type of its field."""
    from dialnb.runs.profiles import named_values
    from dialnb.training.settings import FIELDS

    parsed = {}
    for key, value in named_values(changes, "--set").items():
        check_known("training setting", key, FIELDS)
        parsed[key] = FIELDS[key].parse(value)
    return replace(settings, **parsed)


def _value(text: str) -> Any:
    """The value of an option of an objective, read as JSON where possible."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def own_data(path: str | Path, columns: Sequence[str], **options: Any) -> Dataset:
    """A file of the user's own, with what it calls its columns."""
    from dialnb.data.own import from_file
    from dialnb.runs.profiles import named_values

    return from_file(path, columns=named_values(columns, "--column"), **options)


def conversations(corpus: str, only: str | None, columns: Sequence[str]) -> list[Conversation]:
    """The dialogues of a collection, of a file of the user's own, or of a file made by 'dialnb corpus'."""
    from dialnb.data import corpora
    from dialnb.data.own import is_own
    from dialnb.examples.own import conversations_of

    if corpus in corpora.COLLECTIONS:
        return list(corpora.conversations(corpora.collection(corpus)))
    if is_own(corpus):
        return conversations_of(own_data(corpus, columns))
    if not Path(corpus).is_file():
        raise DataError(f"there is no corpus '{corpus}': neither a file nor one of {', '.join(corpora.COLLECTIONS)}")
    found = corpora.read_corpus(corpus)
    if not only:
        return found
    wanted = {part.label for part in corpora.collection(only)}
    return [dialogue for dialogue in found if dialogue.corpus in wanted]


def checkpoints(out: Path) -> Path:
    """The folder of the checkpoints, beside that of the encoder, once both can be written."""
    return make_folder(out.with_name(f"{out.name}.checkpoints"))


def save(
    model: Encoder | Selector,
    out: Path,
    result: TrainingResult,
    dialogues: list[Conversation],
    what: str,
    settings: Values,
) -> None:
    """Write the model before anything else can fail; then score it, add its card and the facts of its making."""
    import torch

    from dialnb.evaluation.bundled import intent_scores, intent_sets, intent_summary
    from dialnb.models.cards import card
    from dialnb.models.saving import seal
    from dialnb.runs.provenance import provenance
    from dialnb.runs.stages import MEASURED

    encoder: Any = getattr(model, "encoder", model)
    model.save(out, dtype=torch.float16)
    summary = intent_summary(intent_scores(encoder.eval(), intent_sets()))
    facts = {
        "provenance": provenance(),
        **result.facts,
        **{name: getattr(result, name) for name in MEASURED},
        "read": sorted({dialogue.corpus for dialogue in dialogues}),
        "scores": json.loads(summary.to_json(orient="index")),
    }
    encoder.dtype = None
    model.save(out, card(encoder, what, settings, dialogues, result, summary, facts), torch.float16)
    curve = result.curve.iloc[:: max(1, len(result.curve) // 200)]
    facts["curve"] = curve.round(6).to_dict(orient="list")
    write_json(out / "training.json", facts)
    seal(out)
    print(f"{out}: {result.steps:,} steps in {result.seconds:.0f} s, {result.tokens_per_second:,.0f} tokens/s")
    print(summary.round(2).to_string())


COMMANDS = (corpus, train, evaluate, diaeval)
