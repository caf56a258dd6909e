"""Which rate moves an encoder best, by development data: many short trainings side by side on one GPU.

    python -m tools.rates ENCODER --seconds 150 -o figures/engine/rates.json

First the encoder becomes a language model again (masked words); from the rate with the lowest loss on held-out
dialogues, the raw start, every English recipe is tried. The two best rates of each are then trained with two more
seeds, as long as time is left. Every look at a training is written down at once, so running out of time loses nothing.
Trainings read the training splits of bundled data, scores its development splits; test splits are opened only to leave
their utterances out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import BrokenBarrierError

import numpy as np
import torch
from dialnb.studies.selectors import FINE_TUNING, groups_of
from dialnb.studies.templates import Filled
from dialnb.studies.training import agreement, thin

from dialnb.data import load
from dialnb.data.corpora import Conversation, utterances_of
from dialnb.evaluation.intent import evaluate_knn, evaluate_prototypes
from dialnb.examples.manipulations import TASKS, manipulation_examples
from dialnb.models.encoder import load_encoder
from dialnb.models.selector import Selector
from dialnb.runs.provenance import provenance
from dialnb.training import train
from dialnb.training.objectives_dialogue import ManipulationObjective
from dialnb.training.recipes import RECIPES, fit

fork = multiprocessing.get_context("fork")
DEVICE = "cuda" if torch.cuda.device_count() else "cpu"
SEEDS = (1, 2, 3)
VARIANTS = {"CLINC150": ("full", "plus"), "HWU64": ("tadse", "dse"), "SNIPS": ("slots", "dse"), "BANKING77": (None,)}
"""Each dataset with the split that has development data, and the other splits that are tested on."""

PATIENCE = 15  # seconds that a recipe waits for the others before it goes on to further seeds


@dataclass(frozen=True)
class Search:
    """The rates of one recipe to try, for how many steps, how often to look, and the score that decides.

    ``heads`` is the rate of the heads in rates of the encoder; ``start`` the encoder that is trained.
    """

    recipe: str
    rates: tuple[float, ...]
    steps: int
    every: int
    score: str = "1-shot"
    batch: int | None = None
    heads: float | None = None
    start: str = "raw"
    tasks: tuple[str, ...] = ()


WORDS = Search("masked words", (5e-5, 2e-4, 5e-4), 240, 120, "held-out loss", start="encoder")
SIMCSE = Search("SimCSE-unsup", (1e-5, 3e-5, 1e-4), 300, 100, "STS-B")
SENTENCES = (
    Search("DSE", (3e-6, 1e-5, 3e-5, 1e-4), 300, 100, heads=100),
    Search("WMDC", (3e-5, 1e-4, 3e-4), 300, 150, heads=40),
    Search("DSE-dropout", (3e-6, 1e-5, 3e-5), 120, 60, heads=100),
    Search("TOD-BERT", (2e-5, 5e-5, 1e-4), 300, 150),
)
TEMPLATES = (
    Search("TaDSE", (1e-6, 3e-6, 1e-5, 3e-5, 1e-4), 150, 50, "nearest", 128, start="SimCSE-unsup"),
    Search("TaDSE L_u", (1e-6, 1e-5, 1e-4), 150, 50, "nearest", 128, start="SimCSE-unsup"),
)
SELECTORS = (
    Search("BERT", (2e-5, 5e-5, 1e-4, 2e-4), 300, 150, "R10@1", 64, start="encoder"),
    Search("UMS_BERT", (5e-5, 1e-4), 300, 150, "R10@1", 64, start="encoder", tasks=TASKS),
)


# --- development data -------------------------------------------------------------------------------------------------


def dialogues(split: str) -> list[Conversation]:
    return [Conversation("bundled", said) for r in load("bundled/dialogues", None, split) if (said := utterances_of(r))]


def folded(text: str) -> str:
    return " ".join(text.lower().split())


def intent_sets(most: int) -> dict[str, tuple[list, list]]:
    """Training utterances and at most so many development ones of each dataset; BANKING77 has none, so every fifth of
    its training set stays apart.

    Papers split the same dataset differently: what is a test utterance in any of the splits is left out.
    """
    found = {}
    for name, (variant, *others) in VARIANTS.items():
        tested = {folded(r.text) for v in (variant, *others) for r in load(f"bundled/{name}", v).filter(split="test")}
        known, asked = (
            [r for r in load(f"bundled/{name}", variant).filter(split=split)
             if r.intent != "oos" and folded(r.text) not in tested]
            for split in ("train", "dev")
        )  # fmt: skip
        if not asked:
            known, asked = [r for i, r in enumerate(known) if i % 5], known[::5]
        found[name] = thin(known, 20 * most), thin(asked, most)
    return found


def one_shot(encoder, sets, label: str = "1-shot", **encoding) -> dict[str, float]:
    """Prototype accuracy with one example per intent, mean over five draws: of each set, and their mean."""
    scores = {}
    for name, (known, asked) in sets.items():
        rows = evaluate_prototypes(encoder, known, asked, dataset=name, shots=(1,), seeds=range(5), **encoding)
        scores[f"{label}, {name}"] = float(rows["value"].mean())
    return {label: float(np.mean(list(scores.values()))), **scores}


def nearest(encoder, sets) -> float:
    """Accuracy of the nearest of 2,000 training utterances, as TaDSE reads: [CLS], 32 tokens."""
    slots = {name: sets[name] for name in ("SNIPS", "HWU64", "CLINC150")}
    rows = [evaluate_knn(encoder, thin(known, 2000), asked, dataset=name, max_length=32, pooling="cls")
            for name, (known, asked) in slots.items()]  # fmt: skip
    return float(np.mean([row["value"].mean() for row in rows]))


@torch.inference_mode()
def held_out(encoder, objective, examples, size: int) -> dict[str, float]:
    """The terms of an objective on examples that it was not trained on, always with the same masks and draws."""
    batch = examples.batch(np.arange(min(size, len(examples))), np.random.default_rng(24))
    return {name: float(value) for name, value in objective.eval().terms(encoder, batch).items()}


# --- one training -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Desk:
    """What all processes share: where lines are written, until when, how many train at once, where recipes wait for the
    others to have tried their rates, and the development sets."""

    folder: Path
    until: float
    places: object
    firsts: object
    sets: dict

    def write(self, search: Search, rate: float, seed: int, step: int, scores: dict, began: float) -> None:
        if time.time() > self.until:
            os._exit(0)
        line = {"recipe": search.recipe, "start": search.start, "rate": rate, "seed": seed, "steps": search.steps,
                "step": step, "scores": scores, "seconds": round(time.time() - began, 1)}  # fmt: skip
        with (self.folder / "lines.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    @contextmanager
    def place(self):
        """One of the places to train at, as soon as one is free; the process ends if none is in time."""
        if not self.places.acquire(timeout=max(0.0, self.until - time.time())):
            os._exit(0)
        try:
            yield
        finally:
            self.places.release()

    def lines(self, recipe: str) -> list[dict]:
        path = self.folder / "lines.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        return [line for line in lines if line["recipe"] == recipe]


def settings_of(search: Search, usual, rate: float, seed: int):
    heads = search.heads and rate * search.heads
    precision = "bfloat16" if DEVICE == "cuda" else "float32"
    made = replace(usual, learning_rate=rate, head_learning_rate=heads, seed=seed, epochs=1000, max_steps=search.steps,
                   evaluate_every=search.every, precision=precision, compiled=False)  # fmt: skip
    return replace(made, batch_size=search.batch) if search.batch else made


def sentence_training(search: Search, encoder, data, asked, desk: Desk, rate: float, seed: int) -> None:
    """One training of a recipe in a process of its own; its encoder stays in the folder for those that follow."""
    with desk.place():
        began, encoder, recipe, kept = time.time(), encoder.to(DEVICE), RECIPES[search.recipe], {}

        def objective(*given, **options):
            kept["objective"] = recipe.objective(*given, **options)
            return kept["objective"]

        def look(step: int, current) -> None:
            scores = one_shot(current, desk.sets)
            if search.recipe in ("SimCSE-unsup", "TOD-BERT"):
                scores |= one_shot(current, desk.sets, "1-shot, cls", pooling="cls")
            if search.score == "STS-B":
                scores["STS-B"] = agreement(current, asked, pooling="cls")
            if search.score == "nearest":
                scores["nearest"] = nearest(current, desk.sets)
            if search.recipe == WORDS.recipe and kept:
                scores["held-out loss"] = held_out(current, kept["objective"], asked, 1024)["mlm"]
            desk.write(search, rate, seed, step, scores, began)

        if (rate, seed) == (search.rates[0], 1):
            look(0, encoder)
        RECIPES[search.recipe] = replace(recipe, objective=objective)
        settings = settings_of(search, recipe.settings, rate, seed)
        fit(search.recipe, encoder, data, settings, on_epoch=look, show_progress=False)
        if seed == 1:
            encoder.save(desk.folder / "encoders" / search.recipe / f"{rate:g}")


def selector_training(search: Search, selector, examples, asked, desk: Desk, rate: float, seed: int) -> None:
    """The same of a cross-encoder; ``asked`` are development lists, and examples made of them."""
    lists, unseen = asked
    with desk.place():
        began, selector = time.time(), selector.to(DEVICE)
        torch.manual_seed(seed)
        for head in selector.heads.values():
            head[-1].reset_parameters()
        objective = ManipulationObjective(selector.heads, search.tasks)

        def look(step: int, current) -> None:
            right = [np.argmax(row) == group.labels.index(1) for row, group in zip(selector.score(lists), lists)]
            terms = held_out(current, objective, unseen, 256)
            desk.write(search, rate, seed, step, {"R10@1": 100 * float(np.mean(right)), **terms}, began)

        settings = settings_of(search, FINE_TUNING, rate, seed)
        train(selector.encoder, objective, examples, settings, on_epoch=look, show_progress=False)


# --- all trainings of a recipe ----------------------------------------------------------------------------------------


def last_scores(search: Search, desk: Desk) -> dict[float, float]:
    """The score of each rate at the end of its trainings, mean over seeds; lower losses are better, hence the sign."""
    found = defaultdict(list)
    for line in desk.lines(search.recipe):
        if line["step"] == search.steps:
            found[line["rate"]].append(line["scores"][search.score] * (-1 if "loss" in search.score else 1))
    return {rate: float(np.mean(values)) for rate, values in found.items()}


def best_rates(search: Search, desk: Desk) -> list[float]:
    scores = last_scores(search, desk)
    return sorted(scores, key=scores.get, reverse=True)


def side_by_side(search: Search, desk: Desk, one: Callable[[float, int], None], seeds=SEEDS, then=None) -> None:
    """Every rate with the first seed; ``then`` what waits for the best one; the two best with the other seeds."""
    waves = [[(rate, seeds[0]) for rate in search.rates], [(None, seed) for seed in seeds[1:]]]
    for number, wave in enumerate(waves):
        if number:
            wave = [(rate, seed) for rate in best_rates(search, desk)[:2] for _, seed in wave]
        started = [fork.Process(target=one, args=job) for job in wave]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if then and not number:
            then()
        if len(seeds) > 1 and not number:
            with suppress(BrokenBarrierError):
                desk.firsts.wait(PATIENCE)


def best_folder(search: Search, desk: Desk) -> Path:
    return desk.folder / "encoders" / search.recipe / f"{best_rates(search, desk)[0]:g}"


def wait_for(event, desk: Desk) -> None:
    if not event.wait(max(0.0, desk.until - time.time())):
        os._exit(0)


def try_sentences(search: Search, desk: Desk, vocabulary, data, ready: Callable, asked=None, then=None) -> None:
    """Make the examples, once, while other trainings run; wait for the start; try all rates."""
    recipe = RECIPES[search.recipe]
    examples, questions = recipe.examples(vocabulary, recipe.read(data())), asked() if asked else None
    RECIPES[search.recipe] = replace(recipe, examples=lambda *_, **__: examples, reads=list, least=0)
    one = partial(sentence_training, search, ready(), [], questions, desk)
    side_by_side(search, desk, one, SEEDS[:1] if search.recipe == WORDS.recipe else SEEDS, then)


def try_selectors(search: Search, desk: Desk, encoder, groups: int, length: int) -> None:
    """Cross-encoders on the Ubuntu lists."""
    parts, selector = [load("bundled/UbuntuIRC", "selection-10")], Selector(encoder, length, seed=1)
    make = partial(manipulation_examples, selector.encoder, max_length=length, tasks=search.tasks, protocol="paper")
    lists = groups_of(parts, "dev", min(300, groups))
    one = partial(selector_training, search, selector, make(groups_of(parts, "train", groups)), (lists, make(lists)))
    side_by_side(search, desk, partial(one, desk))


def augmentations(limit: int):
    """Templates of the training splits, filled."""
    sets = {"SNIPS": "slots", "MASSIVE": "joined", "HWU64": "tadse", "CLINC150": "plus"}
    return [
        Filled(name, load(f"bundled/{name}", variant), limit=limit).augmentation() for name, variant in sets.items()
    ]


def search_all(encoder, desk: Desk, few: int | None) -> None:
    """Start a process for every recipe, and let them work until the time is over."""
    raw, simcse = fork.Event(), fork.Event()
    every = (WORDS, SIMCSE, *SENTENCES, *TEMPLATES, *SELECTORS)
    searches = {s.recipe: replace(s, rates=s.rates[:1], steps=few, every=few, batch=8) if few else s for s in every}
    words, wanted = searches[WORDS.recipe], searches[SIMCSE.recipe]
    spoken = thin(dialogues("train"), 60 if few else None)
    chain = replace(desk, places=fork.Semaphore(5))  # TaDSE waits for SimCSE, so neither waits for the other recipes

    def unseen():
        return RECIPES[WORDS.recipe].examples(encoder, thin(dialogues("dev"), 400))

    def start_of(event, search: Search):
        wait_for(event, desk)
        return load_encoder(best_folder(search, desk), device="cpu")

    jobs = [partial(try_sentences, words, desk, encoder, lambda: spoken, lambda: encoder, unseen,
                    then=raw.set)]  # fmt: skip
    jobs.append(partial(try_sentences, wanted, chain, encoder, lambda: spoken, lambda: start_of(raw, words),
                        lambda: load("bundled/STS-B", "captions", "dev"), then=simcse.set))  # fmt: skip
    for search in SENTENCES:
        search = searches[search.recipe]
        jobs.append(partial(try_sentences, search, desk, encoder, lambda: spoken, lambda: start_of(raw, words)))
    filled = partial(augmentations, 40 if few else 3000)
    for search in TEMPLATES:
        search = searches[search.recipe]
        jobs.append(partial(try_sentences, search, chain, encoder, filled, lambda: start_of(simcse, wanted)))
    two = replace(desk, places=fork.Semaphore(2), firsts=fork.Barrier(1))
    for search in SELECTORS:
        jobs.append(partial(try_selectors, searches[search.recipe], two, encoder, 40 if few else 8000, 512))
    families = [fork.Process(target=job) for job in jobs]
    for family in families:
        family.start()
    for family in families:
        family.join(max(0.0, desk.until - time.time()))
    for family in families:
        if family.is_alive():
            family.terminate()


def gathered(folder: Path) -> list[dict]:
    """Every training with its looks."""
    found: dict[tuple, dict] = {}
    for line in map(json.loads, (folder / "lines.jsonl").read_text().splitlines()):
        facts = {name: line[name] for name in ("recipe", "start", "rate", "seed", "steps")}
        training = found.setdefault(tuple(facts.values()), {**facts, "looks": []})
        training["looks"].append({name: line[name] for name in ("step", "seconds", "scores")})
    order = {s.recipe: i for i, s in enumerate((WORDS, SIMCSE, *SENTENCES, *TEMPLATES, *SELECTORS))}
    return sorted(found.values(), key=lambda t: (order[t["recipe"]], t["rate"], t["seed"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("encoder", help="the encoder that all trainings start from: a folder or a hub id")
    parser.add_argument("--seconds", type=float, default=600, help="when to stop")
    parser.add_argument("--places", type=int, default=8, help="sentence encoders that are trained at once")
    parser.add_argument("--few", type=int, help="try everything with so many steps, to see that it works")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    until = time.time() + options.seconds
    encoder = load_encoder(options.encoder, device="cpu")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        firsts = fork.Barrier(1 + len(SENTENCES) + len(TEMPLATES))
        desk = Desk(
            Path(folder), until, fork.Semaphore(options.places), firsts, intent_sets(20 if options.few else 1000)
        )
        search_all(encoder, desk, options.few)
        found = {
            "encoder": encoder.name,
            "seconds": options.seconds,
            **provenance(),
            "trainings": gathered(Path(folder)),
        }
    options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"{len(found['trainings'])} trainings in {options.output}")


if __name__ == "__main__":
    main()
