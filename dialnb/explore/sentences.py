"""Sentences of one's own among those of the corpora: how similar, next to which, and where on the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
import pandas as pd

from dialnb.data import load
from dialnb.errors import DataError
from dialnb.evaluation.bundled import INTENT_SETS
from dialnb.evaluation.projection import METHODS, project
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, nearest, normalise
from dialnb.explore.maps import OWN, SpaceMap
from dialnb.explore.methods import RAW, Methods, size_of
from dialnb.explore.panel import Choice, Panel, Text, table
from dialnb.studies.training import thin

SHARED_INTENTS = {
    "weather": {"CLINC150": "weather", "HWU64": "weather_query", "SNIPS": "GetWeather"},
    "play music": {"CLINC150": "play_music", "HWU64": "play_music", "SNIPS": "PlayMusic"},
    "book a restaurant": {"CLINC150": "restaurant_reservation", "SNIPS": "BookRestaurant"},
    "set an alarm": {"CLINC150": "alarm", "HWU64": "alarm_set"},
    "exchange rate": {"CLINC150": "exchange_rate", "HWU64": "qa_currency", "BANKING77": "exchange_rate"},
    "lost card": {"CLINC150": "report_lost_card", "BANKING77": "lost_or_stolen_card"},
    "tell a joke": {"CLINC150": "tell_joke", "HWU64": "general_joke"},
    "recipe": {"CLINC150": "recipe", "HWU64": "cooking_recipe"},
}
"""What is asked in several corpora, and the name that each of them has for it."""

COLOURS = ("intent", "corpus", "method")


def lines_of(text: str, what: str, least: int = 1) -> list[str]:
    """The lines that have something on them."""
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if len(found) < least:
        raise DataError(f"{what}: expected at least {least}, one a line, but found {len(found)}")
    return found


def similarities(encoder: SupportsEncode, sentences: Sequence[str]) -> pd.DataFrame:
    """The cosine of every two sentences; a row is named by its sentence, a column by its number."""
    vectors = normalise(encoder.encode(list(sentences)))
    names = [f"{number}. {text}" for number, text in enumerate(sentences, 1)]
    cosines = pd.DataFrame(vectors @ vectors.T, names, range(1, len(names) + 1)).round(2)
    return table(cosines, index=True, formats="{:.2f}").background_gradient("Blues", vmin=0.2, vmax=1.1)


def library(profile: str = "quick") -> pd.DataFrame:
    """Test utterances of the bundled intent corpora to look for neighbours among: text, intent, corpus."""
    rows = []
    for dataset, variant in INTENT_SETS.values():
        records = thin(list(load(f"bundled/{dataset}", variant).filter(split="test")), 16 * size_of(profile).points)
        rows += [(r.text, r.intent.replace("_", " "), dataset) for r in records]
    return pd.DataFrame(rows, columns=["text", "intent", "corpus"])


def neighbours(encoders: Mapping[str, SupportsEncode], sentences: Sequence[str], profile: str = "quick") -> Panel:
    """What each sentence is next to in the corpora, for one encoder or another."""
    known, once = library(profile), {name: EncodeOnce(encoder) for name, encoder in encoders.items()}

    def show(sentences: str, encoder: str) -> list:
        asked = lines_of(sentences, "sentences")
        references = once[encoder].encode(known["text"].tolist())
        cosines, places = nearest(once[encoder].encode(asked), references, 3)
        found = known.iloc[places.ravel()].reset_index(drop=True)
        near = found.assign(similarity=cosines.ravel(), **{"your sentence": np.repeat(asked, 3)})
        near = near.rename(columns={"text": "is next to"})
        near.loc[near["your sentence"].duplicated(), "your sentence"] = ""
        columns = ["your sentence", "is next to", "similarity", "intent", "corpus"]
        return [table(near[columns], formats={"similarity": "{:.2f}"})]

    names = tuple(encoders)
    written = Text("Your sentences, one a line:", "\n".join(sentences))
    return Panel(show, sentences=written, encoder=Choice("encoder", names[-1], names))


class Space:
    """Utterances of shared intents in the spaces of several methods, and one's own sentences among them."""

    def __init__(self, methods: Methods, sentences: Sequence[str] = (), profile: str = "quick", seed: int = 1) -> None:
        self.size, self.seed = size_of(profile), seed
        self.encoders = {name: EncodeOnce(encoder) for name, encoder in methods.encoders.items()}
        named = [(intent, corpus, name) for intent, own in SHARED_INTENTS.items() for corpus, name in own.items()]
        rows = [(text, intent, corpus) for intent, corpus, name in named
                for text in _utterances(corpus, name, self.size.points)]  # fmt: skip
        self.utterances = pd.DataFrame(rows, columns=["text", "intent", "corpus"])
        self.own = pd.DataFrame({"text": list(sentences), "intent": OWN, "corpus": OWN})
        self._planes: dict[tuple, pd.DataFrame] = {}

    def map(self, method: str = RAW) -> Panel:
        """The map of one method, to be chosen."""
        choice = Choice("encoder", method, tuple(self.encoders))
        return Panel(lambda encoder: [self._map((encoder,), self.size.projections, COLOURS)], encoder=choice)

    def compare(self, left: str = RAW, right: str = "DSE") -> Panel:
        """Two methods beside each other: maps, numbers, and utterances that only one of them places well."""

        def show(left: str, right: str) -> list:
            both = tuple(dict.fromkeys((left, right)))
            return [self._map(both, ("tsne",), COLOURS[:2]), self.numbers(both), *self.differences(left, right)]

        names = tuple(self.encoders)
        return Panel(show, left=Choice("left", left, names), right=Choice("right", right, names))

    def numbers(self, methods: Sequence[str]) -> pd.DataFrame:
        """How well intents, and how badly corpora, are told apart by the space of each method."""
        from sklearn.metrics import silhouette_score

        rows = {}
        for name in methods:
            vectors = self._vectors(name)
            sharp = {f"silhouette by {by} (-1 to 1)": silhouette_score(vectors, self.utterances[by], metric="cosine")
                     for by in ("intent", "corpus")}  # fmt: skip
            rows[name] = {"nearest utterance has the same intent": f"{100 * self.found[name].mean():.0f} %"}
            rows[name] |= {key: f"{value:.2f}" for key, value in sharp.items()}
        return table(pd.DataFrame(rows), "Two spaces in numbers", index=True)

    def differences(self, left: str, right: str, count: int = 4) -> list[pd.DataFrame]:
        """Utterances that one method puts beside their own intent and the other does not."""
        rows = []
        for winner, loser in ((left, right), (right, left)):
            chosen = np.flatnonzero(self.found[winner] & ~self.found[loser])
            for place in thin(chosen, count):
                near = {name: self.utterances["text"][self._next(name)[place]] for name in (left, right)}
                rows.append({"utterance": self.utterances["text"][place], "right for": winner}
                            | {f"its neighbour for {name}": text for name, text in near.items()})  # fmt: skip
        return [table(pd.DataFrame(rows), "Right for one of the two only")] if rows else []

    @cached_property
    def found(self) -> dict[str, np.ndarray]:
        """For each method: has the nearest other utterance the same intent?"""
        intents = self.utterances["intent"].to_numpy()
        return {name: intents[self._next(name)] == intents for name in self.encoders}

    def _next(self, name: str) -> np.ndarray:
        vectors = self._vectors(name)
        places = nearest(vectors, vectors, 2)[1]
        return np.where(places[:, 0] == np.arange(len(places)), places[:, 1], places[:, 0])

    def _vectors(self, name: str) -> np.ndarray:
        return self.encoders[name].encode(self.utterances["text"].tolist())

    def _map(self, methods: Sequence[str], projections: Sequence[str], colours: Sequence[str]) -> SpaceMap:
        planes = [self._plane(method, projection) for method in methods for projection in projections]
        shown = " and ".join(methods)
        return SpaceMap(pd.concat(planes, ignore_index=True), tuple(colours), f"What people ask, seen by {shown}")

    def _plane(self, method: str, projection: str) -> pd.DataFrame:
        if (method, projection) not in self._planes:
            points = pd.concat([self.utterances, self.own], ignore_index=True)
            vectors = self.encoders[method].encode(points["text"].tolist())
            plane = project(vectors, projection, seed=self.seed)
            who, right = self._who()
            detail = [
                f"{intent}, {corpus}{by}" for intent, corpus, by in zip(points["intent"], points["corpus"], right)
            ]
            told = {"panel": method, "projection": METHODS[projection], "method": who, "detail": detail}
            self._planes[method, projection] = plane.drop(columns="method").join(points).assign(**told)
        return self._planes[method, projection]

    def _who(self) -> tuple[list[str], list[str]]:
        """Which methods place each point well: as a label, and by their names."""
        trained = np.sum([right for name, right in self.found.items() if name != RAW], axis=0)
        raw, every = self.found[RAW], len(self.found) - 1
        labels = np.select([raw & (trained == every), ~raw & (trained > 0), raw],
                           ["right for all", "right for trained ones only", "right for raw, not for all"],
                           "right for none")  # fmt: skip
        names = [", ".join(name for name in self.found if self.found[name][i]) or "none" for i in range(len(labels))]
        own = [OWN] * len(self.own)
        return [*labels, *own], [*(f"\nnearest is right for: {name}" for name in names), *("" for _ in own)]


def _utterances(corpus: str, intent: str, count: int) -> list[str]:
    variant = dict(INTENT_SETS.values())[corpus]
    records = load(f"bundled/{corpus}", variant).filter(intent=intent, split=("test", "train"))
    return thin(list(dict.fromkeys(chain(records.filter(split="test").texts(), records.texts()))), count)
