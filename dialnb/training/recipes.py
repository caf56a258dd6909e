"""Recipes: how each row of the papers' tables is trained, from the same encoder and the same data.

``RECIPES`` is the one table of all five papers: `dialnb train NAME`, the models of the notebooks and the matrix take
theirs from it. The printed hyperparameters are for BERT-base on 8 GPUs for hours; profiles give smaller encoders rates
that move them. Both are recorded with every run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dialnb.data import Conversation, SelectionGroup, paired_dialogues
from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Examples
from dialnb.examples.manipulations import TASKS, manipulation_examples
from dialnb.examples.masking import MaskedExamples, MaskedPairExamples, next_sentence_examples, replaced_token_examples
from dialnb.examples.matching import MatchingExamples, build_groups, matching_examples, neighbours
from dialnb.examples.pairs import (
    PairExamples,
    Talks,
    consecutive_pairs,
    context_pairs,
    dropout_examples,
    keep_last_words,
    pair_examples,
    unique_sentences,
)
from dialnb.examples.readings import reply_lists, thin
from dialnb.examples.templates import augmented_dropout_examples, template_examples
from dialnb.examples.windows import WINDOWS, window_examples
from dialnb.files import Fields, Values
from dialnb.models.encoder import Encoder
from dialnb.models.layout import lay_out_as_bert
from dialnb.models.selector import Selector, add_marks, add_placeholders
from dialnb.seeding import seeded
from dialnb.training.loop import TrainingResult, loss_on, train
from dialnb.training.objective import Objective, Sum
from dialnb.training.objectives import (
    ManipulationObjective,
    MaskedLanguageModel,
    MatchingGuidedObjective,
    NextSentencePrediction,
    PairObjective,
    SiameseObjective,
    TemplateObjective,
)
from dialnb.training.pretrain import language_rows, replaced_token_detection
from dialnb.training.settings import PRINTED, TrainingSettings

Cache = Path | None
"""The folder that keeps tokenised texts."""

WINDOW_SETS = (WINDOWS, (1,), (2,), (3,), (1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5))
CONTEXT = 128  # tokens of a TOD-BERT context; 512 in the paper
MOST_NEGATIVES = 19
"""DialogueCSE: every group is built with so many; fewer are its first ones, so that all settings share them."""


def _as_it_is(encoder: Encoder) -> Encoder:
    return encoder


@dataclass(frozen=True)
class Recipe:
    """A table row that is trained: its examples, its objective, its printed settings, and what it takes of the data.

    ``examples(encoder, data, cache=...)``, ``prepare(encoder)`` and ``objective(encoder)`` may take further parameters,
    which are the options of the recipe: ``of_examples`` and ``of_start`` name those of the first two (``settings`` and
    ``seed`` are of the training); all others, and ``of_both``, go to the objective.
    """

    name: str
    paper: str
    examples: Callable[..., Examples]
    objective: Callable[..., Objective]
    settings: TrainingSettings
    reads: Callable[[Sequence], Sequence] = paired_dialogues
    least: int = 1  # utterances of a dialogue that makes an example
    heads_first: Fields = field(default_factory=dict)  # settings of a stage in which the encoder is frozen
    prepare: Callable[..., Encoder | Selector] = _as_it_is  # what is trained, made of the encoder
    kept_heads: tuple[str, ...] = ()  # parts of the objective that a test needs
    of_examples: tuple[str, ...] = ()
    of_start: tuple[str, ...] = ()
    of_both: tuple[str, ...] = ()
    family: str = ""  # whose settings it has, where profiles and `settings.yaml` name them; empty: its own

    def read(self, data: Sequence) -> Sequence:
        """Take what the recipe needs of the data; refuse it if no dialogue is long enough."""
        found = self.reads(data)
        sizes = [len(each) if hasattr(each, "__len__") else self.least for each in found]
        if (longest := max(sizes, default=0)) < self.least:
            raise DataError(
                f"{self.name} learns from dialogues of at least {self.least} utterances, but the longest given has "
                f"{longest}: give dialogues (a file with the columns dialogue and text), or choose a recipe that "
                "learns from single utterances, such as DSE-dropout or SimCSE-unsup"
            )
        return found

    def make_objective(self, model: Encoder | Selector, options: Fields) -> Objective:
        """Make the objective with what is left of the options; refuse those that nobody knows."""
        taken = {*self.of_examples, *self.of_start, "head_steps"}.difference(self.of_both)
        return self.objective(model, **{name: value for name, value in options.items() if name not in taken})

    def started(self, encoder: Encoder, options: Fields) -> Encoder | Selector:
        """What is trained, made of the encoder (in place)."""
        return self.prepare(encoder, **_named(self.of_start, options))

    def rehearse(self, encoder: Encoder, options: Fields) -> None:
        """Refuse options that the recipe does not know, before anything is read."""
        self.make_objective(self.started(encoder.clone(), options), options)


def _named(names: Sequence[str], options: Fields) -> Values:
    return {name: options[name] for name in names if name in options}


class Fitted(NamedTuple):
    """What a training gave: the model (an encoder or a selector), the objective with its heads, and the facts."""

    model: Encoder | Selector
    objective: Objective
    result: TrainingResult


def _of(family: str, **fields: Any) -> Callable[..., Recipe]:
    """Make recipes with the settings of a family."""
    return partial(Recipe, family=family, settings=PRINTED[family], **fields)


def _sized(kind: type[Objective], **fixed: Any) -> Callable[..., Objective]:
    """An objective of the encoder's width; what is fixed for a recipe can be overruled by its options."""

    def objective(encoder: Encoder, **options) -> Objective:
        return kind(encoder.dim, **fixed | options)

    return objective


# --- DSE, SimCSE and TOD-BERT -----------------------------------------------------------------------------------------


def _pairs(*turns: int, min_words: int = 3) -> Callable[..., PairExamples]:
    """Make pairs whose queries have so many turns."""

    def examples(encoder, dialogues: Talks, cache: Cache = None) -> PairExamples:
        pairs = []
        for count in turns:
            for query, response in consecutive_pairs(dialogues, count, min_words):
                pairs.append((keep_last_words(query, count) if count > 1 else query, response))
        return pair_examples(encoder, pairs, 32, cache, query_length=32 * max(turns))

    return examples


def _dropout(encoder, dialogues: Talks, cache: Cache = None) -> PairExamples:
    return dropout_examples(encoder, unique_sentences(dialogues), 32, cache)


def _contexts(encoder, dialogues: Talks, cache: Cache = None) -> MaskedPairExamples:
    pairs = context_pairs(dialogues, draws=2, seed=24)
    plain = pair_examples(encoder, pairs, 64, cache, query_length=CONTEXT, query_truncate="left")
    masking = MaskedExamples.from_tokens(encoder, plain.tokens)
    return MaskedPairExamples(plain.tokens, plain.first, plain.second, masking=masking)


_hard_negatives = _sized(PairObjective, loss="hard_negative")
_simcse = _sized(PairObjective, loss="nt_xent", head="tanh", pooling="cls")


def _contrast_and_words(encoder: Encoder, **options) -> Objective:
    contrast = {"loss": "response_contrastive", "head": "none", "pooling": "cls"} | options
    return Sum(contrast=PairObjective(encoder.dim, **contrast), words=MaskedLanguageModel(encoder))


# --- masked words -----------------------------------------------------------------------------------------------------


def _words(encoder, dialogues: Sequence[Conversation], cache: Cache = None, held_out: float = 0.0) -> MaskedExamples:
    """Make rows of all dialogues but the share ``held_out``; of those the rows that are read nowhere else are kept
    for a last look."""

    def masked(rows: Sequence[str]) -> MaskedExamples:
        return MaskedExamples.from_tokens(encoder, encoder.tokenize(rows, 128, cache=cache))

    every = round(1 / held_out) if held_out else 0
    kept = [dialogue for place, dialogue in enumerate(dialogues) if not every or place % every]
    rows = language_rows(kept, seed=24)
    examples = masked(rows)
    if every:
        seen = set(rows)
        examples.held_out = masked([row for row in language_rows(dialogues[::every], seed=24) if row not in seen])
    return examples


def _sentences(
    encoder,
    talks: Sequence[Conversation],
    cache: Cache = None,
    sentences: int | None = None,
    max_length: int = 50,
) -> MaskedExamples:
    """Each distinct sentence once an epoch, ``sentences`` of them."""
    texts = thin(list(dict.fromkeys(text for talk in talks for text in talk.utterances)), sentences)
    return MaskedExamples.from_tokens(encoder, encoder.tokenize(texts, max_length, cache=cache))


# --- WMDC -------------------------------------------------------------------------------------------------------------


def wmdc(windows: Sequence[int] = WINDOWS, weighting: str | None = "irf", mask_duplicates: bool = False) -> Recipe:
    """Name and make WMDC with one head per window; what differs from the main model is in its name:
    "WMDC {1,2} w/o IRF"."""

    def examples(encoder, dialogues: Talks, cache: Cache = None) -> Examples:
        return window_examples(encoder, dialogues, windows, weighting, mask_duplicates, cache)

    objective = _sized(PairObjective, loss="weighted_symmetric", head="linear", windows=tuple(windows))
    name = "WMDC" if tuple(windows) == WINDOWS else f"WMDC {{{','.join(map(str, windows))}}}"
    name += {"irf": "", None: " w/o IRF"}.get(weighting, f", {weighting}") + ", masked" * mask_duplicates
    return _of("WMDC")(name, "wmdc", examples, objective, least=min(windows) + 1)


# --- TaDSE ------------------------------------------------------------------------------------------------------------


def _tadse(name: str, examples: Callable[..., Examples], make: Callable[..., Objective]) -> Recipe:
    """The head begins as the one that the encoder was trained with, where the checkpoint keeps it as its pooler."""

    def objective(encoder: Encoder, **options) -> Objective:
        made = make(encoder, **options)
        dense = getattr(getattr(encoder.transformer, "pooler", None), "dense", None)
        if dense is not None:
            head: Any = made.heads["0"] if isinstance(made, PairObjective) else made.head
            head[0].load_state_dict(dense.state_dict())
        return made

    made = _of("TaDSE", reads=list, prepare=add_placeholders, kept_heads=("head", "alignment"))
    taken = {"of_examples": ("max_length", "sampling"), "of_start": ("seed", "placeholders")}
    return made(name, "tadse", examples, objective, **taken)


# --- DialogueCSE ------------------------------------------------------------------------------------------------------


def _groups(
    encoder,
    sessions: Sequence[Sequence[str]],
    cache: Cache,
    settings: TrainingSettings,
    negatives: int = 9,
    turns: int = 3,
    sides: str = "both",
    flat: bool = False,
    max_length: int = 50,
) -> MatchingExamples:
    """Groups of a context and candidate replies; of a training that is cut short, no more than it ever looks at."""
    every = [group for group in build_groups(sessions, MOST_NEGATIVES) if any(neighbours(group, turns, sides))]
    seen = settings.batch_size * settings.max_steps if settings.max_steps else None
    groups = thin(every, seen, settings.seed)
    examples = matching_examples(encoder, groups, negatives, turns, sides, flat, max_length, cache)
    examples.share = len(groups) / len(every) if every else 1.0
    return examples


def _as_lists(talks: Sequence) -> list[Sequence[str]]:
    return [getattr(talk, "utterances", talk) for talk in talks]


# --- UMS --------------------------------------------------------------------------------------------------------------


def _as_replies(data: Sequence) -> list[SelectionGroup]:
    """Lists of candidate replies as they are; dialogues are cut into such lists."""
    if len(data) and isinstance(data[0], SelectionGroup):
        return list(data)
    return reply_lists(_as_lists(data))


def _manipulation_losses(selector: Selector, tasks: Sequence[str] = TASKS, task_weight: float = 1.0) -> Objective:
    return ManipulationObjective(selector.heads, tasks, task_weight)


# --- the table --------------------------------------------------------------------------------------------------------

ALONE = {"learning_rate": 1e-3, "schedule": "constant", "warmup": 0.0, "max_steps": 300}
"""A fresh word head would pull the words of the encoder apart, so it learns alone at first."""

_hard_negative_pairs: dict[str, Any] = {"paper": "dse", "objective": _hard_negatives}
_dse = _of("DSE", **_hard_negative_pairs)
_groups_of_replies: dict[str, Any] = {"paper": "dialoguecse", "reads": _as_lists, "least": 2}
_groups_of_replies["of_examples"] = ("settings", "negatives", "turns", "sides", "flat", "max_length")
_dialoguecse = _of("DialogueCSE", **_groups_of_replies, examples=_groups)
_contexts_of_siamese = {"SiameseBERT-s": partial(_groups, turns=1), "SiameseBERT-m": partial(_groups, flat=True)}
_lists_of_replies: dict[str, Any] = {"paper": "ums", "reads": _as_replies, "least": 2}
_ums = _of(
    "UMS",
    **_lists_of_replies,
    prepare=Selector,
    of_examples=("max_length", "tasks", "protocol", "negatives"),
    of_start=("seed", "max_length", "dropout"),
    of_both=("tasks",),
)
_marks: dict[str, Any] = _lists_of_replies | {
    "prepare": add_marks,
    "of_examples": ("max_length",),
    "of_start": ("seed",),
}
_words_alone: dict[str, Any] = {"objective": MaskedLanguageModel, "reads": list}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        _dse("DSE", examples=_pairs(1), least=2),
        _of("DSE-dropout", **_hard_negative_pairs)("DSE-dropout", examples=_dropout),
        _dse("DSE 2-1", examples=_pairs(2), least=3),
        _dse("DSE 3-1", examples=_pairs(3), least=4),
        _dse("DSE 123-1", examples=_pairs(1, 2, 3), least=2),
        _dse("DSE-dianli", examples=_pairs(1, min_words=0), least=2),
        _of("SimCSE-unsup")("SimCSE-unsup", "dse", _dropout, _simcse),
        _of("TOD-BERT")("TOD-BERT", "dse", _contexts, _contrast_and_words, least=2),
        *(wmdc(windows, weighting) for windows in WINDOW_SETS for weighting in ("irf", None)),
        wmdc(weighting="inverse square root"),
        wmdc(mask_duplicates=True),
        _tadse("TaDSE L_u", augmented_dropout_examples, _simcse),
        _tadse("TaDSE L_u + L_t", template_examples, _sized(TemplateObjective, weight_pair=0.0)),
        _tadse("TaDSE", template_examples, _sized(TemplateObjective)),
        _tadse("TaDSE w/ MLP", template_examples, _sized(TemplateObjective, aligned=True)),
        _of("masked words", **_words_alone, of_examples=("held_out",))(
            "masked words", "", _words, heads_first=ALONE, prepare=lay_out_as_bert
        ),
        _of("adaptation", **_words_alone, of_examples=("sentences", "max_length"))(
            "adaptation", "dialoguecse", _sentences, heads_first={"learning_rate": 1e-3, "max_steps": 300}
        ),
        *(
            _of(name, **_groups_of_replies)(
                name + reading, examples=examples, objective=_sized(SiameseObjective, **options)
            )
            for name, examples in _contexts_of_siamese.items()
            for reading, options in (("", {}), (", both sides", {"both": True}), (", pointwise", {"pointwise": True}))
        ),
        _dialoguecse("DialogueCSE I1", objective=_sized(MatchingGuidedObjective, aggregation="I1")),
        _dialoguecse("DialogueCSE I2", objective=_sized(MatchingGuidedObjective)),
        _ums("UMS", examples=manipulation_examples, objective=_manipulation_losses),
        _ums(
            "selection",
            examples=partial(manipulation_examples, tasks=()),
            objective=partial(_manipulation_losses, tasks=()),
        ),
        _of("next sentences", **_marks)(
            "next sentences", examples=next_sentence_examples, objective=NextSentencePrediction
        ),
        _of("replaced tokens", **_marks)(
            "replaced tokens", examples=replaced_token_examples, objective=replaced_token_detection
        ),
    )
}
SHORT = {"SimCSE": "SimCSE-unsup", "DialogueCSE": "DialogueCSE I2", "Siamese": "SiameseBERT-m"}
"""Names that people type."""


def get_recipe(recipe: str | Recipe) -> Recipe:
    """Look a recipe up by its name or its short name; one that is given stays as it is."""
    if not isinstance(recipe, str):
        return recipe
    check_known("recipe", recipe, [*RECIPES, *SHORT])
    return RECIPES[SHORT.get(recipe, recipe)]


def scaled(settings: TrainingSettings, **changes) -> TrainingSettings:
    """Change printed settings, ``None`` meaning "as printed"."""
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})


# --- training ---------------------------------------------------------------------------------------------------------


def fit(
    recipe: Recipe | str,
    encoder: Encoder,
    data: Sequence,
    settings: TrainingSettings | None = None,
    folder: Path | None = None,
    cache: Cache = None,
    options: Fields | None = None,
    on_epoch: Callable[[int, Encoder | Selector], None] | None = None,
    **training,
) -> Fitted:
    """Train ``encoder`` in place by a recipe: on dialogues whose neighbours answer each other, on augmented datasets
    (TaDSE), or on lists of candidate replies (UMS).

    ``options`` go to examples and objective (``{"temperature": 0.1}``, ``{"loss": my_loss}``), ``training`` to
    the loop.
    """
    recipe = get_recipe(recipe)
    settings, options = settings or recipe.settings, dict(options or {})
    model = recipe.started(encoder, options | {"seed": settings.seed})
    encoder = model.encoder if isinstance(model, Selector) else model
    wanted = _named(recipe.of_examples, options | {"settings": settings})
    examples = recipe.examples(encoder, recipe.read(data), cache=cache, **wanted)
    share = getattr(examples, "share", 1.0)  # of the data, where no more is ever looked at
    with seeded(settings.seed):
        objective = recipe.make_objective(model, options)
    if recipe.heads_first:  # the heads learn alone, with the encoder frozen
        most = recipe.heads_first["max_steps"]
        steps = options.get("head_steps") or min(most, settings.max_steps or most)
        layers = encoder.transformer.config.num_hidden_layers
        alone = replace(settings, **{**recipe.heads_first, "max_steps": steps, "epochs": steps, "freeze": layers})
        train(encoder, objective, examples, alone, folder and folder / "heads", name=f"{recipe.name}, head alone")
    watch = on_epoch and (lambda epoch, _: on_epoch(epoch, model))
    whole = replace(settings, epochs=settings.epochs / share)
    result = train(encoder, objective, examples, whole, folder, watch, name=recipe.name, **training)
    result.curve["epoch"] *= share * getattr(examples, "of_epoch", 1.0)
    if held_out := getattr(examples, "held_out", None):
        result.facts["held_out_loss"] = loss_on(encoder, objective, held_out, settings.batch_size)
    return Fitted(model, objective, result)
