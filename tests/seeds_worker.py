"""Every training of every paper, tiny: prints the name and a hash of the weights and losses of each (test_seeds.py).

Started as ``seeds_worker.py FOLDER worn``, everything happens in a process that has drawn random numbers, in the other
order, and each training is killed after its first checkpoint and started again.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import tiny
import torch

from dialnb.data.corpora import Conversation
from dialnb.data.records import IntentUtterance, SelectionGroup, Slot
from dialnb.evaluation.finetuning import FineTuning, fit_classifier
from dialnb.examples.templates import Augmentation
from dialnb.models.encoder import load_encoder
from dialnb.training import TrainingSettings, loop
from dialnb.training.pretrain import SHAPES, PretrainingRecipe, pretrain
from dialnb.training.recipes import RECIPES, fit

STEPS = {"batch_size": 8, "epochs": 9, "max_steps": 2, "precision": "float32", "learning_rate": 1e-2}
STEPS |= {"checkpoint_every": 1}
SETTINGS = TrainingSettings(**STEPS)
FINE_TUNING = FineTuning(1e-3, batch_size=8, epochs=2, patience=2, eval_steps=1, max_length=20, dropout=0.1)
TALK = [(*tiny.sentences(5, seed), "thanks bye") for seed in range(6)]
SLOTTED = [
    IntentUtterance(f"book a {what} for {n}", "book", (Slot("what", what, 7, 7 + len(what)),), split="train")
    for what in ("table", "room", "taxi", "seat")
    for n in ("one", "two", "three")
]


class Killed(BaseException):
    """What a process that is killed leaves: a checkpoint, and nobody who tidies up."""


def encoder(family: str = "bert", dropout: float = 0.1):
    with torch.random.fork_rng():  # what is drawn after it hangs on the process, not on the seed of this one
        return tiny.encoder(family, dropout=dropout, max_position_embeddings=80)


def given(name: str, dropout: float = 0.1) -> tuple:
    """An encoder, data and options with which a recipe can be tried."""
    recipe = RECIPES[name]
    lists = [SelectionGroup(str(i), said[:4], said[4:], (1, 0), "train") for i, said in enumerate(TALK)]
    talks = [Conversation("toy", said) for said in TALK]
    data = {"tadse": [Augmentation(SLOTTED, k=2)], "ums": lists}.get(recipe.paper, talks)
    options = {"max_length": 40} if recipe.paper == "ums" else {}
    options |= {"negatives": 2} if recipe.paper == "dialoguecse" and "negatives" in recipe.of_examples else {}
    return encoder("electra" if name == "replaced tokens" else "bert", dropout), data, options


def trainings() -> dict[str, Callable[[Path], tuple]]:
    """Of each training: a function of a folder for its checkpoints that gives the encoder and the losses."""
    SHAPES["tiny"] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    talks = [Conversation("toy", said) for said in TALK]

    def by_recipe(name: str, work: Path) -> tuple:
        own, data, options = given(name)
        made = fit(name, own, data, replace(RECIPES[name].settings, **STEPS), work, options=options)
        return made.model, made.result.curve

    def pretrained(kind: str, work: Path) -> tuple:
        """With word pieces of its own, of which many are equally frequent."""
        recipe = PretrainingRecipe("tiny", kind, vocabulary=80, settings=SETTINGS)
        own, result = pretrain(talks, recipe, work, "cpu")
        return own, result.curve

    def fine_tuned(work: Path) -> tuple:
        rows, better = (encoder().tokenize(tiny.sentences(12)), np.arange(12) % 3), count(1)
        made = fit_classifier(encoder(), rows, rows, lambda *_: next(better), FINE_TUNING)
        return made, None

    def incomplete(work: Path) -> tuple:
        """A folder without the weights of the pooler, at which a head of TaDSE may start."""
        own = encoder()
        own.transformer.pooler = None
        return load_encoder(own.save(work / "encoder"), device="cpu"), None

    def on_replies(work: Path) -> tuple:
        """UMS on lists that are cut from dialogues."""
        made = fit("UMS", encoder(), talks, SETTINGS, work, options={"max_length": 40})
        return made.model, made.result.curve

    found = {name: partial(by_recipe, name) for name in RECIPES}
    found |= {f"pretraining {kind}": partial(pretrained, kind) for kind in ("bert", "electra")}
    return found | {"fine-tuning": fine_tuned, "incomplete encoder": incomplete, "UMS on replies": on_replies}


def digest(model, curve) -> str:
    content = hashlib.sha256(b"" if curve is None else repr(curve["loss"].tolist()).encode())
    for name, tensor in sorted(model.state_dict().items()):
        content.update(name.encode() + tensor.detach().numpy().tobytes())
    return content.hexdigest()


def killed_once(made: Callable, work: Path) -> None:
    save, saved = loop.save_checkpoint, []

    def last(*arguments):
        saved.append(save(*arguments))
        raise Killed

    loop.save_checkpoint = last
    try:
        made(work)
    except Killed:
        assert saved
    finally:
        loop.save_checkpoint = save


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, worn = Path(sys.argv[1]), sys.argv[2] == "worn"
    every = list(trainings().items())
    for number, (name, made) in enumerate(reversed(every) if worn else every):
        work = place / f"{number}"
        work.mkdir()
        if worn:
            random.seed(number), np.random.seed(number), torch.manual_seed(number)
            killed_once(made, work)
            torch.randn(number + 1), np.random.rand(3)
        print(f"{name}\t{digest(*made(work))}", flush=True)
