"""Make an encoder from scratch by language modelling on dialogues.

    python -m tools.pretrain --corpus train.jsonl.xz --shape small --kind electra --set epochs=2 -o my-encoder

In a notebook the same is a `Model` with a `PretrainingRecipe`. `tools.mini` makes the bundled encoder, with a teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from click import IntRange, command, option

from dialnb.commands.engine import change, checkpoints, conversations, save, training
from dialnb.errors import check_known
from dialnb.files import Values
from dialnb.models.encoder import Encoder
from dialnb.models.saving import check_place
from dialnb.training.pretrain import SHAPES, PretrainingRecipe, pretrain
from dialnb.training.settings import PRINTED, TrainingSettings


def pretraining_settings(shape: str) -> TrainingSettings:
    """How an encoder of ``shape`` is pretrained."""
    check_known("shape", shape, SHAPES)
    return PRINTED[f"pretraining {shape}"]


def description(encoder: Encoder, kind: str) -> str:
    """What the card says of an encoder made from scratch."""
    size = sum(p.numel() for p in encoder.parameters()) / 1e6
    c = encoder.transformer.config
    return (
        f"A small {kind.upper()} encoder ({c.num_hidden_layers} layers, {c.hidden_size} wide, {size:.1f} M "
        f"parameters, {len(encoder.tokenizer):,} uncased word pieces of its own), made from scratch by dialnb with "
        f"{'masked language modelling' if kind == 'bert' else 'replaced-token detection'}"
        " on dialogues. Mean pooling. English, task-oriented and technical chat; nothing was removed from the corpora, "
        "so it may reflect their biases. A research baseline, not a product."
    )


def listed(recipe: PretrainingRecipe) -> Values:
    """The settings of the recipe and of its training, as the card lists them."""
    settings = asdict(recipe) | asdict(recipe.settings)
    settings.pop("settings")
    return settings


@command()
@training
@option("--shape", default="mini", show_default=True, help="mini, small, medium or base")
@option("--kind", default="bert", show_default=True, help="bert or electra")
@option("--vocabulary", type=IntRange(100), default=8192, show_default=True, help="word pieces")
@option("--max-length", type=IntRange(8), default=128, show_default=True, help="longest input")
def main(out: Path, changes: Sequence[str], corpus: str, only: str, columns: Sequence[str], **about: Any) -> None:
    """Make an encoder from scratch."""
    check_place(out)
    settings = change(pretraining_settings(about["shape"]), changes)
    recipe = PretrainingRecipe(settings=settings, **about)
    work = checkpoints(out)
    dialogues = conversations(corpus, only, columns)
    encoder, result = pretrain(dialogues, recipe, work, name=out.name)
    save(encoder, out, result, dialogues, description(encoder, recipe.kind), listed(recipe))


if __name__ == "__main__":
    main()
