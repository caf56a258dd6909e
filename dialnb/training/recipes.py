"""Recipes: how each row of the papers' tables is trained, from the same encoder and the same data.

``RECIPES`` is the one table of all five papers: `dialnb train NAME`, the models of the notebooks and the matrix take
theirs from it. The printed hyperparameters are for BERT-base on 8 GPUs for hours; profiles give smaller encoders rates
that move them. Both are recorded with every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from dialnb.data.corpora import Conversation, paired_dialogues
from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError, UnknownName
from dialnb.examples.batches import Examples
from dialnb.examples.manipulations import MAX_LENGTH, TASKS, manipulation_examples
from dialnb.examples.masking import MaskedExamples, MaskedPairExamples
from dialnb.examples.matching import MatchingExamples, build_groups, matching_examples, neighbours
from dialnb.examples.pairs import (
    PairExamples,
    consecutive_pairs,
    context_pairs,
    dropout_examples,
    keep_last_words,
    pair_examples,
    tokenise_once,
    unique_sentences,
)
from dialnb.examples.posttraining import next_sentence_examples, replaced_token_examples
from dialnb.examples.readings import reply_lists, thin
from dialnb.examples.templates import Augmentation, augmented_dropout_examples, template_examples
from dialnb.examples.windows import WINDOWS, window_examples
from dialnb.models.encoder import Encoder
from dialnb.models.selector import Selector, add_marks
from dialnb.seeding import seeded
from dialnb.training.loop import TrainingResult, train
from dialnb.training.objective import Objective, Sum
from dialnb.training.objectives import MaskedLanguageModel, NextSentencePrediction, PairObjective, TemplateObjective
from dialnb.training.objectives_dialogue import (
    ManipulationObjective,
    MatchingGuidedObjective,
    SiameseObjective,
)
from dialnb.training.pretrain import language_rows, replaced_token_detection
from dialnb.training.settings import TrainingSettings

Talks = Sequence[Sequence[str]]

# --- printed settings -------------------------------------------------------------------------------------------------

_ADAMW = TrainingSettings(schedule="linear", optimiser="adamw", precision="bfloat16")
DSE = TrainingSettings(batch_size=1024, epochs=15, learning_rate=3e-6, head_learning_rate=3e-4, precision="bfloat16")
SIMCSE = replace(_ADAMW, optimiser="adam", batch_size=64, learning_rate=3e-5, evaluate_every=125)
TODBERT = replace(_ADAMW, batch_size=32, epochs=2, learning_rate=5e-5)
WMDC = replace(
    _ADAMW, batch_size=256, learning_rate=3e-5, head_learning_rate=40 * 3e-5, schedule="onecycle", weight_decay=0.01
)
TADSE = replace(_ADAMW, batch_size=16, epochs=2, learning_rate=1e-8, clip=1.0, precision="float32")
"""Models with M_A trained on one dataset have 8 epochs."""
MASKED_WORDS = replace(_ADAMW, batch_size=1024, learning_rate=2e-4, warmup=0.05, weight_decay=0.01, clip=1.0)
ADAPTATION = replace(
    _ADAMW, batch_size=50, epochs=0.5, learning_rate=2e-5, weight_decay=0.01, warmup=0.1, compiled=False,
    precision="float32",
)  # fmt: skip
"""DialogueCSE's first stage: half an epoch of masked words (Section 5.2)."""
CONTRAST = replace(ADAPTATION, batch_size=20, epochs=3, learning_rate=5e-5)
"""Its second stage; the paper leaves open the optimiser, its schedule and the epochs. Many short trainings do not earn
a compilation back."""
FINE_TUNING = replace(_ADAMW, batch_size=32, epochs=5, learning_rate=3e-5, clip=5.0)
POST_TRAINING = TrainingSettings(batch_size=384, epochs=20, learning_rate=3e-5, clip=5.0, precision="bfloat16")
"""UMS, as the authors' code has it: two epochs of ten maskings are twenty passes with fresh masks."""

WINDOW_SETS = (WINDOWS, (1,), (2,), (3,), (1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5))
CONTEXT = 128  # tokens of a TOD-BERT context; 512 in the paper
MOST_NEGATIVES = 19
"""DialogueCSE: every group is built with so many; fewer are its first ones, so that all settings share them."""


@dataclass(frozen=True)
class Recipe:
    """A table row that is trained: its examples, its objective, its printed settings, and what it takes of the data.

    ``examples(encoder, data, cache, ...)`` and ``objective(encoder, ...)`` may name further parameters: these are the
    options of the recipe (``settings``, where ``examples`` asks for it, are those of the training).
    """

    name: str
    paper: str
    examples: Callable[..., Examples]
    objective: Callable[..., Objective]
    settings: TrainingSettings
    reads: Callable[[Sequence], Sequence] = paired_dialogues
    least: int = 1  # utterances of a dialogue that makes an example
    heads_first: Mapping[str, Any] = field(default_factory=dict)  # settings of a stage in which the encoder is frozen
    prepare: Callable[..., Encoder | Selector] | None = None  # what is trained, made of the encoder
    kept_heads: tuple[str, ...] = ()  # parts of the objective that a test needs

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

    def split_options(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tell the options of the examples from those of the objective; what both name goes to both."""
        of_examples = list(signature(self.examples).parameters)[3:]
        own = {name: value for name, value in options.items() if name in of_examples}
        shared = list(signature(self.objective).parameters)[1:]
        rest = {name: value for name, value in options.items() if name not in own or name in shared}
        return own, {name: value for name, value in rest.items() if name != "head_steps"}

    def rehearse(self, encoder: Encoder, options: Mapping[str, Any]) -> None:
        """Refuse options that the recipe does not know, before anything is read."""
        model = self.prepare(encoder.clone(), 0, **options) if self.prepare else encoder
        self.objective(model, **self.split_options(options)[1])


class Fitted(NamedTuple):
    """What a training gave: the model (an encoder or a selector), the objective with its heads, and the facts."""

    model: Encoder | Selector
    objective: Objective
    result: TrainingResult


# --- DSE, SimCSE and TOD-BERT -----------------------------------------------------------------------------------------


def _pairs(encoder, dialogues: Talks, cache: Path | None, turns: tuple[int, ...] = (1,)) -> PairExamples:
    pairs = []
    for count in turns:
        for query, response in consecutive_pairs(dialogues, count):
            pairs.append((keep_last_words(query, count) if count > 1 else query, response))
    return pair_examples(encoder, pairs, 32, cache, query_length=32 * max(turns))


def _several_turns(*turns: int) -> Callable[..., PairExamples]:
    return partial(_pairs, turns=turns)


def _dropout(encoder, dialogues: Talks, cache: Path | None) -> PairExamples:
    return dropout_examples(encoder, unique_sentences(dialogues), 32, cache)


def _entailed(encoder, pairs: Talks, cache: Path | None) -> PairExamples:
    return pair_examples(encoder, consecutive_pairs(pairs, min_words=0), 32, cache)


def _contexts(encoder, dialogues: Talks, cache: Path | None) -> MaskedPairExamples:
    pairs = context_pairs(dialogues, draws=2, seed=24)
    plain = pair_examples(encoder, pairs, 64, cache, query_length=CONTEXT, query_truncate="left")
    masking = MaskedExamples.from_tokens(encoder, plain.tokens)
    return MaskedPairExamples(plain.tokens, plain.first, plain.second, masking=masking)


def _hard_negatives(encoder, loss="hard_negative", **options) -> Objective:
    given = {"temperature": 0.05} if loss == "hard_negative" else {}
    return PairObjective(encoder.dim, loss, "contrastive", **given | options)


def _simcse(encoder, **options) -> Objective:
    return PairObjective(encoder.dim, "nt_xent", "tanh", "cls", **options)


def _response_contrast_and_words(encoder, **options) -> Objective:
    contrast = PairObjective(encoder.dim, "response_contrastive", "none", "cls", **options)
    return Sum(contrast=contrast, words=MaskedLanguageModel(encoder))


# --- masked words -----------------------------------------------------------------------------------------------------


def _words(encoder, dialogues: Sequence[Conversation], cache: Path | None) -> MaskedExamples:
    rows = language_rows(dialogues, windows=1.0, seed=24)
    return MaskedExamples.from_tokens(encoder, tokenise_once(encoder, rows, 128, cache))


def _sentences(encoder, talks: Talks, cache: Path | None, sentences: int | None = None, max_length: int = 50):
    """Each distinct sentence once an epoch, ``sentences`` of them."""
    texts = thin(list(dict.fromkeys(text for talk in talks for text in talk.utterances)), sentences)
    return MaskedExamples.from_tokens(encoder, tokenise_once(encoder, texts, max_length, cache), 0.15)


def _word_head(encoder) -> Objective:
    return MaskedLanguageModel(encoder)


# --- WMDC -------------------------------------------------------------------------------------------------------------


def wmdc(windows: Sequence[int] = WINDOWS, weighting: str | None = "irf", mask_duplicates: bool = False) -> Recipe:
    """Name and make WMDC with one head per window; what differs from the main model is in its name:
    "WMDC {1,2} w/o IRF"."""

    def examples(encoder, dialogues: Talks, cache: Path | None) -> Examples:
        return window_examples(encoder, dialogues, windows, weighting, mask_duplicates, cache)

    def objective(encoder, **options) -> Objective:
        return PairObjective(encoder.dim, "weighted_symmetric", "linear", windows=tuple(windows), **options)

    name = "WMDC" if tuple(windows) == WINDOWS else f"WMDC {{{','.join(map(str, windows))}}}"
    name += {"irf": "", None: " w/o IRF"}.get(weighting, f", {weighting}") + ", masked" * mask_duplicates
    return Recipe(name, "wmdc", examples, objective, WMDC, least=min(windows) + 1)


# --- TaDSE ------------------------------------------------------------------------------------------------------------


def _templates(encoder, augmentations: Sequence[Augmentation], cache: Path | None) -> Examples:
    return template_examples(encoder, augmentations, 32, cache)


def _augmented_dropout(encoder, augmentations: Sequence[Augmentation], cache: Path | None) -> Examples:
    return augmented_dropout_examples(encoder, augmentations, 32, cache)


def _start_at_pooler(head, encoder) -> None:
    """Begin with the head that the encoder was trained with, where the checkpoint keeps it as its pooler."""
    dense = getattr(getattr(encoder.transformer, "pooler", None), "dense", None)
    if dense is not None:
        head[0].load_state_dict(dense.state_dict())


def _utterance_loss(encoder, **options) -> Objective:
    objective = _simcse(encoder, **options)
    _start_at_pooler(objective.heads["0"], encoder)
    return objective


def _template_losses(encoder, **options) -> Objective:
    objective = TemplateObjective(encoder.dim, **options)
    _start_at_pooler(objective.head, encoder)
    return objective


# --- DialogueCSE ------------------------------------------------------------------------------------------------------


def _groups(
    encoder, sessions: Talks, cache: Path | None, settings: TrainingSettings, negatives: int = 9, turns: int = 3,
    sides: str = "both", flat: bool = False, max_length: int = 50,
) -> MatchingExamples:  # fmt: skip
    """Groups of a context and candidate replies; of a training that is cut short, no more than it ever looks at."""
    every = [group for group in build_groups(sessions, MOST_NEGATIVES) if any(neighbours(group, turns, sides))]
    seen = settings.batch_size * settings.max_steps if settings.max_steps else None
    groups = thin(every, seen, settings.seed)
    examples = matching_examples(
        encoder, groups, negatives, turns, sides, flat=flat, max_length=max_length, cache=cache
    )
    examples.share = len(groups) / len(every) if every else 1.0
    return examples


def _matching(encoder, temperature: float = 0.1, aggregation: str = "I2") -> Objective:
    return MatchingGuidedObjective(encoder.dim, aggregation, temperature)


def _siamese(encoder) -> Objective:
    return SiameseObjective(encoder.dim)


def _dialoguecse(name: str, examples: Callable, objective: Callable) -> Recipe:
    return Recipe(name, "dialoguecse", examples, objective, CONTRAST, _as_lists, least=2)


def _as_lists(talks: Sequence) -> list[Sequence[str]]:
    return [getattr(talk, "utterances", talk) for talk in talks]


# --- UMS --------------------------------------------------------------------------------------------------------------


def _as_replies(data: Sequence) -> list[SelectionGroup]:
    """Lists of candidate replies as they are; dialogues are cut into such lists."""
    if len(data) and isinstance(data[0], SelectionGroup):
        return list(data)
    return reply_lists(_as_lists(data))


def _manipulations(
    encoder, groups, cache: Path | None, tasks=TASKS, protocol: str = "paper", max_length: int = MAX_LENGTH
) -> Examples:
    return manipulation_examples(encoder, groups, max_length, cache, tasks=tuple(tasks), protocol=protocol)


def _manipulation_losses(selector: Selector, tasks=TASKS) -> Objective:
    return ManipulationObjective(selector.heads, tuple(tasks))


def _runs(build: Callable) -> Callable[..., Examples]:
    def examples(encoder, groups, cache: Path | None, max_length: int = MAX_LENGTH) -> Examples:
        return build(encoder, groups, max_length, cache)

    return examples


def _selector(encoder: Encoder, seed: int, max_length: int = MAX_LENGTH, **_: Any) -> Selector:
    return Selector(encoder, max_length, seed=seed)


def _marked(encoder: Encoder, seed: int, **_: Any) -> Encoder:
    return add_marks(encoder, seed)


def _ums(name: str, examples: Callable, objective: Callable, settings=FINE_TUNING, prepare=_selector) -> Recipe:
    return Recipe(name, "ums", examples, objective, settings, _as_replies, least=2, prepare=prepare)


# --- the table --------------------------------------------------------------------------------------------------------

ALONE = {"learning_rate": 1e-3, "schedule": "constant", "warmup": 0.0, "max_steps": 300}
"""A fresh word head would pull the words of the encoder apart, so it learns alone at first."""
HEADS = ("head", "alignment")

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("DSE", "dse", _pairs, _hard_negatives, DSE, least=2),
        Recipe("DSE-dropout", "dse", _dropout, _hard_negatives, replace(DSE, epochs=1)),
        Recipe("DSE 2-1", "dse", _several_turns(2), _hard_negatives, DSE, least=3),
        Recipe("DSE 3-1", "dse", _several_turns(3), _hard_negatives, DSE, least=4),
        Recipe("DSE 123-1", "dse", _several_turns(1, 2, 3), _hard_negatives, DSE, least=2),
        Recipe("DSE-dianli", "dse", _entailed, _hard_negatives, DSE, least=2),
        Recipe("SimCSE-unsup", "dse", _dropout, _simcse, SIMCSE),
        Recipe("TOD-BERT", "dse", _contexts, _response_contrast_and_words, TODBERT, least=2),
        *(wmdc(w, weighting) for w in WINDOW_SETS for weighting in ("irf", None)),
        wmdc(weighting="inverse square root"),
        wmdc(mask_duplicates=True),
        Recipe("TaDSE L_u", "tadse", _augmented_dropout, _utterance_loss, TADSE, list),
        Recipe("TaDSE L_u + L_t", "tadse", _templates, partial(_template_losses, weight_pair=0.0), TADSE, list,
               kept_heads=HEADS),
        Recipe("TaDSE", "tadse", _templates, _template_losses, TADSE, list, kept_heads=HEADS),
        Recipe("TaDSE w/ MLP", "tadse", _templates, partial(_template_losses, aligned=True), TADSE, list,
               kept_heads=HEADS),
        Recipe("masked words", "", _words, _word_head, MASKED_WORDS, list, heads_first=ALONE),
        Recipe("adaptation", "dialoguecse", _sentences, _word_head, ADAPTATION, list,
               heads_first={"learning_rate": 1e-3, "max_steps": 300}),
        _dialoguecse("SiameseBERT-s", partial(_groups, turns=1), _siamese),
        _dialoguecse("SiameseBERT-m", partial(_groups, flat=True), _siamese),
        _dialoguecse("DialogueCSE I1", _groups, partial(_matching, aggregation="I1")),
        _dialoguecse("DialogueCSE I2", _groups, _matching),
        _ums("UMS", _manipulations, _manipulation_losses),
        _ums("selection", partial(_manipulations, tasks=()), partial(_manipulation_losses, tasks=())),
        _ums("next sentences", _runs(next_sentence_examples), NextSentencePrediction, POST_TRAINING, _marked),
        _ums("replaced tokens", _runs(replaced_token_examples), replaced_token_detection,
             replace(POST_TRAINING, batch_size=256, epochs=19), _marked),
    )
}  # fmt: skip
SHORT = {"SimCSE": "SimCSE-unsup", "DialogueCSE": "DialogueCSE I2", "Siamese": "SiameseBERT-m"}
"""Names that people type."""


def get_recipe(name: str) -> Recipe:
    """Look a recipe up by its name or its short name."""
    if SHORT.get(name, name) not in RECIPES:
        raise UnknownName("recipe", name, [*RECIPES, *SHORT])
    return RECIPES[SHORT.get(name, name)]


def scaled(settings: TrainingSettings, **changes) -> TrainingSettings:
    """Change printed settings, ``None`` meaning "as printed"."""
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})


# --- training ---------------------------------------------------------------------------------------------------------


def fit(
    recipe: Recipe | str, encoder: Encoder, data: Sequence, settings: TrainingSettings | None = None,
    folder: Path | None = None, cache: Path | None = None, options: Mapping[str, Any] | None = None,
    on_epoch: Callable[[int, Encoder | Selector], None] | None = None, **training,
) -> Fitted:  # fmt: skip
    """Train ``encoder`` in place by a recipe: on dialogues whose neighbours answer each other, on augmented datasets
    (TaDSE), or on lists of candidate replies (UMS).

    ``options`` go to examples and objective (``{"temperature": 0.1}``, ``{"loss": my_loss}``), ``training`` to
    the loop.
    """
    recipe = get_recipe(recipe) if isinstance(recipe, str) else recipe
    settings, options = settings or recipe.settings, dict(options or {})
    model = recipe.prepare(encoder, settings.seed, **options) if recipe.prepare else encoder
    encoder = getattr(model, "encoder", model)
    of_examples, of_objective = recipe.split_options(options)
    if "settings" in signature(recipe.examples).parameters:
        of_examples["settings"] = settings
    examples = recipe.examples(encoder, recipe.read(data), cache, **of_examples)
    share = getattr(examples, "share", 1.0)  # of the data, where no more is ever looked at
    with seeded(settings.seed):
        objective = recipe.objective(model, **of_objective)
    if recipe.heads_first:
        _train_heads(recipe, encoder, objective, examples, settings, folder, options.get("head_steps"))
    watch = on_epoch and (lambda epoch, _: on_epoch(epoch, model))
    whole = replace(settings, epochs=settings.epochs / share)
    result = train(encoder, objective, examples, whole, folder, watch, name=recipe.name, **training)
    if share != 1.0:
        result = replace(result, curve=result.curve.assign(epoch=result.curve["epoch"] * share))
    return Fitted(model, objective, result)


def _train_heads(recipe: Recipe, encoder, objective, examples, settings, folder, steps: int | None) -> None:
    """Let the heads learn alone, with the encoder frozen."""
    steps = steps or min(recipe.heads_first["max_steps"], settings.max_steps or recipe.heads_first["max_steps"])
    layers = encoder.transformer.config.num_hidden_layers
    alone = replace(settings, **recipe.heads_first | {"max_steps": steps, "epochs": steps, "freeze": layers})
    train(encoder, objective, examples, alone, folder and folder / "heads", name=f"{recipe.name}, head alone")


def train_recipe(name: str, encoder: Encoder, data: Sequence, *arguments: Any, **more: Any) -> TrainingResult:
    """Do as `fit`, for those who want the facts of the training alone."""
    return fit(name, encoder, data, *arguments, **more).result
