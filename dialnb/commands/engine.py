"""`dialnb corpus | pretrain | train | evaluate`: the engine without a notebook."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields, replace
from pathlib import Path

from dialnb.commands import count
from dialnb.errors import BadParameter, DataError, UnknownName


def register(subparsers) -> None:
    """Add the four commands."""
    corpus = subparsers.add_parser("corpus", help="write a collection of dialogues into one compressed file")
    corpus.add_argument("collection", help="todbert, redistributable, train-splits, reachable or chinese")
    corpus.add_argument("-o", "--out", required=True, type=Path, metavar="FILE")
    corpus.set_defaults(run=_corpus)

    pretrain = subparsers.add_parser("pretrain", help="make an encoder from scratch by language modelling on dialogues")
    pretrain.add_argument("--corpus", required=True, help="a collection, a file made by 'dialnb corpus', or your own")
    pretrain.add_argument("--only", metavar="COLLECTION", help="use only this collection's parts of the corpus file")
    pretrain.add_argument("--shape", default="mini", help="mini, small, medium or base (default: %(default)s)")
    pretrain.add_argument("--kind", default="bert", help="bert or electra (default: %(default)s)")
    pretrain.add_argument("--vocabulary", type=count(100), default=8192, help="word pieces (default: %(default)s)")
    pretrain.add_argument("--max-length", type=count(8), default=128, help="longest input (default: %(default)s)")
    pretrain.add_argument(
        "--next-sentences", action="store_true", help="read dialogues in two segments too, as BERT did"
    )
    pretrain.add_argument("--teacher", metavar="ENCODER", help="learn the hidden states of this encoder as well")
    pretrain.set_defaults(run=_pretrain)

    train = subparsers.add_parser("train", help="train an encoder by a recipe of the papers")
    train.add_argument("recipe", help="for example DSE, DSE-dropout, SimCSE-unsup")
    train.add_argument("--encoder", default="mini", help="bundled name, folder or hub id (default: %(default)s)")
    train.add_argument("--corpus", required=True, help="a collection, a file made by 'dialnb corpus', or your own "
                       ".csv or .jsonl of dialogues or utterances (see dialnb.data.own)")  # fmt: skip
    train.add_argument("--only", metavar="COLLECTION", help="use only this collection's parts of the corpus file")
    train.add_argument("--cap", type=count(1), metavar="N", help="at most about N utterances of every corpus")
    train.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                       help="an option of the objective, such as temperature=0.1 or form=plain")  # fmt: skip
    train.set_defaults(run=_train)

    evaluate = subparsers.add_parser("evaluate", help="few-shot intent scores of encoders, or scores on your own data")
    evaluate.add_argument("encoders", nargs="+", metavar="ENCODER", help="bundled name, folder or hub id")
    evaluate.add_argument(
        "--data", type=Path, metavar="FILE", help="your own .csv or .jsonl instead of the bundled data"
    )
    evaluate.add_argument("--json", action="store_true", help="tidy rows for machines")
    evaluate.set_defaults(run=_evaluate)

    for parser in (pretrain, train, evaluate):
        parser.add_argument("--column", action="append", default=[], metavar="OURS=THEIRS",
                            help="what your own file calls a column, such as text=Utterance")  # fmt: skip
    for parser in (pretrain, train):
        parser.add_argument("-o", "--out", required=True, type=Path, metavar="FOLDER")
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a training setting")


def change(settings, changes: list[str]):
    """A dataclass with ``key=value`` changes applied, each read in the type of its field."""
    from dialnb.runs.profiles import Parameter

    types = {field.name: field.type.replace(" | None", "?") for field in fields(settings)}
    parsed = {}
    for key, value in split(changes, "--set").items():
        if key not in types:
            raise UnknownName("training setting", key, types)
        parsed[key] = Parameter(key, types[key], getattr(settings, key), "a training setting").parse(value)
    return replace(settings, **parsed)


def split(changes: list[str], flag: str) -> dict[str, str]:
    """``key=value`` texts as a dictionary."""
    for text in changes:
        if "=" not in text:
            raise BadParameter(f"{flag} takes KEY=VALUE, but got '{text}'")
    return {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in changes)}


def _options(changes: list[str]) -> dict:
    """Options of an objective, values read as JSON where possible."""
    parsed = {}
    for key, value in split(changes, "--option").items():
        try:
            parsed[key] = json.loads(value)
        except ValueError:
            parsed[key] = value
    return parsed


def _own(path: str | Path, columns: list[str], **options):
    """A file of the user's own, with what it calls its columns."""
    from dialnb.data.own import from_file

    return from_file(path, columns=split(columns, "--column"), **options)


def _conversations(corpus: str, only: str | None = None, columns: list[str] = ()) -> list:
    from dialnb.data.corpora import COLLECTIONS, collection, conversations, read_corpus
    from dialnb.data.own import is_own
    from dialnb.examples.own import conversations_of

    if corpus in COLLECTIONS:
        return list(conversations(collection(corpus)))
    if is_own(corpus):
        return conversations_of(_own(corpus, columns))
    if not Path(corpus).is_file():
        raise DataError(f"there is no corpus '{corpus}': neither a file nor one of {', '.join(COLLECTIONS)}")
    found = read_corpus(corpus)
    wanted = {part.label for part in collection(only)} if only else {d.corpus for d in found}
    return [d for d in found if d.corpus in wanted]


def _corpus(arguments: argparse.Namespace) -> int:
    from dialnb.data.corpora import collection, conversations, write_corpus

    count = write_corpus(arguments.out, conversations(collection(arguments.collection)))
    print(f"{arguments.out}: {count:,} dialogues, {arguments.out.stat().st_size / 1e6:.1f} MB")
    return 0


def _pretrain(arguments: argparse.Namespace) -> int:
    from dialnb.models.cards import pretraining_card
    from dialnb.models.saving import check_place
    from dialnb.training.pretrain import PretrainingRecipe, pretrain, pretraining_settings

    check_place(arguments.out)
    settings = change(pretraining_settings(arguments.shape), arguments.set)
    read = {
        "max_length": arguments.max_length,
        "next_sentences": arguments.next_sentences,
        "teacher": arguments.teacher,
    }
    recipe = PretrainingRecipe(arguments.shape, arguments.kind, arguments.vocabulary, settings=settings, **read)
    work = _work(arguments.out)
    dialogues = _conversations(arguments.corpus, arguments.only, arguments.column)
    encoder, result = pretrain(dialogues, recipe, work, name=arguments.out.name)
    _save(encoder, arguments.out, result, dialogues, pretraining_card, recipe)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    import torch

    from dialnb.data.corpora import capped
    from dialnb.data.own import is_own
    from dialnb.examples.own import augmentation_of
    from dialnb.models.cards import recipe_card
    from dialnb.models.encoder import load_encoder
    from dialnb.models.saving import check_place
    from dialnb.training.recipes import get_recipe, train_recipe

    recipe, options = get_recipe(arguments.recipe), _options(arguments.option)
    check_place(arguments.out)
    filled = recipe.paper == "tadse"
    if filled and not is_own(arguments.corpus):
        raise BadParameter(f"{recipe.name} learns from utterances with slots: give a .csv, .tsv or .jsonl of your own")
    settings = recipe.settings if torch.cuda.is_available() else replace(recipe.settings, precision="float32")
    settings, work = change(settings, arguments.set), _work(arguments.out)
    encoder = load_encoder(arguments.encoder)
    recipe.objective(encoder, **options)  # refuses bad options before the data are read
    dialogues = _conversations(arguments.corpus, arguments.only, arguments.column)
    if arguments.cap:
        dialogues = capped(dialogues, arguments.cap)
    start = encoder.name
    data = [augmentation_of(_own(arguments.corpus, arguments.column))] if filled else dialogues
    result = train_recipe(arguments.recipe, encoder, data, settings, work, work, options)
    encoder.name = arguments.out.name
    _save(encoder, arguments.out, result, dialogues, recipe_card, (recipe.name, start, settings))
    return 0


def _work(out: Path) -> Path:
    """The folder of the checkpoints, beside that of the encoder, once both can be written."""
    from dialnb.files import make_folder

    return make_folder(out.with_name(f"{out.name}.checkpoints"))


def _save(encoder, out: Path, result, dialogues, card, recipe) -> None:
    """Write the encoder before anything else can fail; then score it, add its card and the facts of its making."""
    import torch

    from dialnb.evaluation.bundled import intent_scores, intent_summary
    from dialnb.models.saving import seal
    from dialnb.runs.provenance import provenance

    encoder.save(out, dtype=torch.float16)
    summary = intent_summary(intent_scores(encoder.eval()))
    facts = {"provenance": provenance(), **result.facts, "steps": result.steps,
             "seconds": round(result.seconds, 1), "tokens_per_second": round(result.tokens_per_second),
             "examples_per_second": round(result.examples_per_second), "peak_memory_gb": result.peak_memory_gb,
             "read": sorted({dialogue.corpus for dialogue in dialogues}),
             "scores": json.loads(summary.to_json(orient="index"))}  # fmt: skip
    encoder.dtype = None
    encoder.save(out, card(encoder, recipe, dialogues, result, summary, facts), torch.float16)
    curve = result.curve.iloc[:: max(1, len(result.curve) // 200)]
    facts["curve"] = curve.round(6).to_dict(orient="list")
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    seal(out)
    print(f"{out}: {result.steps:,} steps in {result.seconds:.0f} s, {result.tokens_per_second:,.0f} tokens/s")
    print(summary.round(2).to_string())


def _evaluate(arguments: argparse.Namespace) -> int:
    import pandas as pd

    from dialnb.evaluation.bundled import intent_scores, intent_sets, intent_summary
    from dialnb.models.encoder import load_encoder

    if arguments.data:
        return _evaluate_own(arguments)
    encoders = [load_encoder(name) for name in arguments.encoders]
    sets = intent_sets()
    rows = [intent_scores(encoder, sets).assign(encoder=encoder.name) for encoder in encoders]
    if arguments.json:
        print(pd.concat(rows).to_json(orient="records", lines=True))
        return 0
    print("Prototype accuracy in %, bundled test sets, mean of 10 seeds; ± is the 95 % interval of Ave over seeds\n")
    names = [encoder.name for encoder in encoders]
    print(pd.concat([intent_summary(part) for part in rows], keys=names, names=["encoder"]).round(2).to_string())
    return 0


def _evaluate_own(arguments: argparse.Namespace) -> int:
    import pandas as pd

    from dialnb.evaluation.own import evaluate_own, summary_own
    from dialnb.models.encoder import load_encoder

    encoders = [load_encoder(name) for name in arguments.encoders]
    records = _own(arguments.data, arguments.column)
    if records.table.kind == "IntentUtterance" and set(records.column("split")) == {"train"}:
        print("dialnb: no split 'test' in the file; a fifth of every intent is held out", file=sys.stderr)
        records = _own(arguments.data, arguments.column, held_out=0.2)
    rows = pd.concat([evaluate_own(encoder, records).assign(encoder=encoder.name) for encoder in encoders])
    if arguments.json:
        print(rows.to_json(orient="records", lines=True))
        return 0
    print(f"{records!r}\n\n{summary_own(rows).round(3).to_string()}")
    return 0
