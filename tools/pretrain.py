"""Make an encoder from scratch by language modelling on dialogues.

    python -m tools.pretrain --corpus train.jsonl.xz --shape small --kind electra --set epochs=2 -o my-encoder

In a notebook the same is a `Model` with a `PretrainingRecipe`. `tools.mini` makes the bundled encoder, with a teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click import IntRange, command, option

from dialnb.commands.engine import change, checkpoints, conversations, save, training
from dialnb.models.cards import pretraining_card
from dialnb.models.saving import check_place
from dialnb.training import pretrain as engine


@command()
@training
@option("--shape", default="mini", show_default=True, help="mini, small, medium or base")
@option("--kind", default="bert", show_default=True, help="bert or electra")
@option("--vocabulary", type=IntRange(100), default=8192, show_default=True, help="word pieces")
@option("--max-length", type=IntRange(8), default=128, show_default=True, help="longest input")
def main(out: Path, changes: Sequence[str], corpus: str, only: str, columns: Sequence[str], **about: Any) -> None:
    """Make an encoder from scratch."""
    check_place(out)
    settings = change(engine.pretraining_settings(about["shape"]), changes)
    recipe = engine.PretrainingRecipe(settings=settings, **about)
    work = checkpoints(out)
    dialogues = conversations(corpus, only, columns)
    encoder, result = engine.pretrain(dialogues, recipe, work, name=out.name)
    save(encoder, out, result, dialogues, pretraining_card, recipe)


if __name__ == "__main__":
    main()
