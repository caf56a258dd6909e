"""Recipes: how each row of the papers' tables is trained, from the same encoder and the same data.

The printed hyperparameters are for BERT-base on 8 GPUs for hours; ``scaled`` gives the smaller encoders rates that move
them. Both are recorded with every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dialnb.data.corpora import Conversation, paired_dialogues
from dialnb.errors import DataError, UnknownName
from dialnb.examples.batches import Examples
from dialnb.examples.masking import MaskedExamples, MaskedPairExamples
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
from dialnb.examples.templates import Augmentation, augmented_dropout_examples, template_examples
from dialnb.examples.windows import WINDOWS, window_examples
from dialnb.seeding import seeded
from dialnb.training.loop import TrainingResult, train
from dialnb.training.objective import Objective, Sum
from dialnb.training.objectives import MaskedLanguageModel, PairObjective, TemplateObjective
from dialnb.training.pretrain import language_rows
from dialnb.training.settings import TrainingSettings

Dialogues = Sequence[Sequence[str]]
DSE = TrainingSettings(batch_size=1024, epochs=15, learning_rate=3e-6, head_learning_rate=3e-4, precision="bfloat16")
SIMCSE = TrainingSettings(batch_size=64, epochs=1, learning_rate=3e-5, schedule="linear", precision="bfloat16",
                          evaluate_every=125)  # fmt: skip
TODBERT = TrainingSettings(batch_size=32, epochs=2, learning_rate=5e-5, schedule="linear", optimiser="adamw",
                           precision="bfloat16")  # fmt: skip
WMDC = TrainingSettings(batch_size=256, learning_rate=3e-5, head_learning_rate=40 * 3e-5, schedule="onecycle",
                        optimiser="adamw", weight_decay=0.01, precision="bfloat16")  # fmt: skip
TADSE = TrainingSettings(batch_size=16, epochs=2, learning_rate=1e-8, schedule="linear", optimiser="adamw", clip=1.0)
"""As printed; models with M_A trained on one dataset have 8 epochs."""
MASKED_WORDS = TrainingSettings(batch_size=1024, epochs=1, learning_rate=2e-4, schedule="linear", warmup=0.05,
                                optimiser="adamw", weight_decay=0.01, clip=1.0, precision="bfloat16")  # fmt: skip
WORD_HEAD = replace(MASKED_WORDS, learning_rate=1e-3, schedule="constant", warmup=0.0, max_steps=300)
"""A fresh word head would pull the words of the encoder apart, so it learns alone at first."""
WINDOW_SETS = (WINDOWS, (1,), (2,), (3,), (1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5))
CONTEXT = 128  # tokens of a TOD-BERT context; 512 in the paper


@dataclass(frozen=True)
class Recipe:
    """A table row that is trained: its examples, its objective, its printed settings, and what it takes of the data."""

    name: str
    paper: str
    examples: Callable[[object, Sequence, Path | None], Examples]
    objective: Callable[..., Objective]  # of the encoder, and options of the objective
    settings: TrainingSettings
    reads: Callable[[Sequence], Sequence] = paired_dialogues
    least: int = 1  # utterances of a dialogue that makes an example
    heads_first: TrainingSettings | None = None  # of a stage before, in which the encoder does not move

    def read(self, data: Sequence) -> Sequence:
        """What the recipe takes of the data; refused if no dialogue is long enough."""
        found = self.reads(data)
        if (longest := max(map(len, found), default=0)) < self.least:
            raise DataError(
                f"{self.name} learns from dialogues of at least {self.least} utterances, but the longest given has "
                f"{longest}: give dialogues (a file with the columns dialogue and text), or choose a recipe that "
                "learns from single utterances, such as DSE-dropout or SimCSE-unsup"
            )
        return found


def _pairs(turns: Sequence[int]) -> Callable:
    def build(encoder, dialogues: Dialogues, cache: Path | None) -> PairExamples:
        longest = max(turns)
        pairs = [
            (keep_last_words(query, t) if t > 1 else query, response)
            for t in turns
            for query, response in consecutive_pairs(dialogues, t)
        ]
        return pair_examples(encoder, pairs, 32, cache, query_length=32 * longest)

    return build


def _dropout(encoder, dialogues: Dialogues, cache: Path | None) -> PairExamples:
    return dropout_examples(encoder, unique_sentences(dialogues), 32, cache)


def _entailed(encoder, pairs: Dialogues, cache: Path | None) -> PairExamples:
    return pair_examples(encoder, consecutive_pairs(pairs, min_words=0), 32, cache)


def _contexts(encoder, dialogues: Dialogues, cache: Path | None) -> MaskedPairExamples:
    pairs = context_pairs(dialogues, draws=2, seed=24)
    plain = pair_examples(encoder, pairs, 64, cache, query_length=CONTEXT, query_truncate="left")
    masking = MaskedExamples.from_tokens(encoder, plain.tokens)
    return MaskedPairExamples(plain.tokens, plain.first, plain.second, masking=masking)


def _hard_negatives(encoder, **options) -> Objective:
    return PairObjective(encoder.dim, "hard_negative", "contrastive", **({"temperature": 0.05} | options))


def _simcse(encoder, **options) -> Objective:
    return PairObjective(encoder.dim, "nt_xent", "tanh", "cls", **options)


def _response_contrast_and_words(encoder, **options) -> Objective:
    contrast = PairObjective(encoder.dim, "response_contrastive", "none", "cls", **options)
    return Sum(contrast=contrast, words=MaskedLanguageModel(encoder))


def _words(encoder, dialogues: Sequence[Conversation], cache: Path | None) -> MaskedExamples:
    rows = language_rows(dialogues, windows=1.0, seed=24)
    return MaskedExamples.from_tokens(encoder, tokenise_once(encoder, rows, 128, cache))


def _word_head(encoder) -> Objective:
    return MaskedLanguageModel(encoder)


def wmdc(windows: Sequence[int] = WINDOWS, weighting: str | None = "irf", mask_duplicates: bool = False) -> Recipe:
    """WMDC with one head per window; its name tells what differs from the main model: "WMDC {1,2} w/o IRF"."""

    def examples(encoder, dialogues: Dialogues, cache: Path | None) -> Examples:
        return window_examples(encoder, dialogues, windows, weighting, mask_duplicates, cache)

    def objective(encoder, **options) -> Objective:
        return PairObjective(encoder.dim, "weighted_symmetric", "linear", windows=tuple(windows), **options)

    name = "WMDC" if tuple(windows) == WINDOWS else f"WMDC {{{','.join(map(str, windows))}}}"
    name += {"irf": "", None: " w/o IRF"}.get(weighting, f", {weighting}") + ", masked" * mask_duplicates
    return Recipe(name, "wmdc", examples, objective, WMDC, least=min(windows) + 1)


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


def _template_losses(**chosen) -> Callable[..., Objective]:
    def objective(encoder, **options) -> Objective:
        made = TemplateObjective(encoder.dim, **(chosen | options))
        _start_at_pooler(made.head, encoder)
        return made

    return objective


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("DSE", "dse", _pairs((1,)), _hard_negatives, DSE, least=2),
        Recipe("DSE-dropout", "dse", _dropout, _hard_negatives, replace(DSE, epochs=1)),
        Recipe("DSE 2-1", "dse", _pairs((2,)), _hard_negatives, DSE, least=3),
        Recipe("DSE 3-1", "dse", _pairs((3,)), _hard_negatives, DSE, least=4),
        Recipe("DSE 123-1", "dse", _pairs((1, 2, 3)), _hard_negatives, DSE, least=2),
        Recipe("DSE-dianli", "dse", _entailed, _hard_negatives, DSE, least=2),
        Recipe("SimCSE-unsup", "dse", _dropout, _simcse, SIMCSE),
        Recipe("TOD-BERT", "dse", _contexts, _response_contrast_and_words, TODBERT, least=2),
        *(wmdc(w, weighting) for w in WINDOW_SETS for weighting in ("irf", None)),
        wmdc(weighting="inverse square root"),
        wmdc(mask_duplicates=True),
        Recipe("TaDSE L_u", "tadse", _augmented_dropout, _utterance_loss, TADSE, list),
        Recipe("TaDSE L_u + L_t", "tadse", _templates, _template_losses(weight_pair=0.0), TADSE, list),
        Recipe("TaDSE", "tadse", _templates, _template_losses(), TADSE, list),
        Recipe("TaDSE w/ MLP", "tadse", _templates, _template_losses(aligned=True), TADSE, list),
        Recipe("masked words", "", _words, _word_head, MASKED_WORDS, list, heads_first=WORD_HEAD),
    )
}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return RECIPES[name]


def scaled(settings: TrainingSettings, **changes) -> TrainingSettings:
    """Printed settings with the given changes, ``None`` meaning "as printed"."""
    return replace(settings, **{k: v for k, v in changes.items() if v is not None})


def train_recipe(
    name: str,
    encoder,
    data: Sequence[Conversation] | Sequence[Augmentation],
    settings: TrainingSettings | None = None,
    folder: Path | None = None,
    cache: Path | None = None,
    options: dict | None = None,
    **training,
) -> TrainingResult:
    """Train ``encoder`` in place by the named recipe: on the dialogues whose neighbours answer each other or, for
    TaDSE, on augmented datasets (one or several).

    ``options`` go to the objective (``{"temperature": 0.1}``, ``{"form": "plain"}``), ``training`` to the loop.
    """
    recipe = get_recipe(name)
    settings = settings or recipe.settings
    examples = recipe.examples(encoder, recipe.read(data), cache)
    with seeded(settings.seed):
        objective = recipe.objective(encoder, **(options or {}))
    if recipe.heads_first:
        still = {"freeze": encoder.transformer.config.num_hidden_layers}
        same = {name: getattr(settings, name) for name in ("batch_size", "precision", "seed", "chunk")}
        first = replace(recipe.heads_first, **same, **still)
        first = replace(first, max_steps=min(first.max_steps, settings.max_steps or first.max_steps))
        train(encoder, objective, examples, first, folder and folder / "heads", name=f"{name}, head alone")
    return train(encoder, objective, examples, settings, folder, name=name, **training)
