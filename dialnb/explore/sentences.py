"""Sentences of one's own among those of the corpora: how similar, next to which, and where on the map."""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

import numpy as np
from pandas import DataFrame, Series
from pandas.io.formats.style import Styler
from sklearn.metrics import silhouette_score

from dialnb.data import load
from dialnb.errors import DataError
from dialnb.evaluation import EncodeOnce, SupportsEncode, as_encoder, nearest, normalise, stacked
from dialnb.evaluation.bundled import INTENT_SETS
from dialnb.evaluation.projection import METHODS, project
from dialnb.examples.readings import thin
from dialnb.explore.maps import OWN, SpaceMap
from dialnb.explore.methods import RAW, Methods, size_of
from dialnb.explore.panel import Control, Panel, table
from dialnb.files import read_yaml

COLOURS = ("intent", "corpus", "method")


def lines_of(text: str, what: str, least: int = 1) -> list[str]:
    """The lines that have something on them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < least:
        raise DataError(f"{what}: expected at least {least}, one a line, but found {len(lines)}")
    return lines


def similarities(encoder: SupportsEncode, sentences: Sequence[str]) -> Styler:
    """The cosine of every two sentences; a row is named by its sentence, a column by its number."""
    vectors = normalise(as_encoder(encoder).encode(list(sentences)))
    numbers = range(1, len(sentences) + 1)
    names = [f"{number}. {text}" for number, text in zip(numbers, sentences)]
    cosines = DataFrame(vectors @ vectors.T, names, numbers).round(2)
    return table(cosines, index=True, formats="{:.2f}").background_gradient("Blues", vmin=0.2, vmax=1.1)


def library(profile: str = "quick") -> DataFrame:
    """Test utterances of the bundled intent corpora to look for neighbours among: text, intent, corpus."""
    rows = []
    for corpus, variant in INTENT_SETS.values():
        records = list(load(f"bundled/{corpus}", variant).filter(split="test"))
        for record in thin(records, 16 * size_of(profile).points):
            rows.append({"text": record.text, "intent": record.intent.replace("_", " "), "corpus": corpus})
    return DataFrame(rows)


def neighbours(encoders: Mapping[str, SupportsEncode], sentences: Sequence[str], profile: str = "quick") -> Panel:
    """What each sentence is next to in the corpora, for one encoder or another."""
    known = library(profile)
    once = {name: EncodeOnce(encoder) for name, encoder in encoders.items()}

    def show(sentences: str, encoder: str) -> list:
        asked = lines_of(sentences, "sentences")
        references = once[encoder].encode(known["text"].tolist())
        cosines, places = nearest(once[encoder].encode(asked), references, 3)
        near = known.iloc[places.ravel()].reset_index(drop=True).rename(columns={"text": "is next to"})
        near.insert(0, "your sentence", [text for sentence in asked for text in (sentence, "", "")])
        near.insert(2, "similarity", cosines.ravel())
        return [table(near, formats={"similarity": "{:.2f}"})]

    names = tuple(encoders)
    return Panel(
        show,
        sentences=Control("Your sentences, one a line:", "\n".join(sentences)),
        encoder=Control("encoder", names[-1], names),
    )


class Space:
    """Utterances of shared intents in the spaces of several methods, and one's own sentences among them."""

    def __init__(self, methods: Methods, sentences: Sequence[str] = (), profile: str = "quick", seed: int = 1) -> None:
        self.size, self.seed = size_of(profile), seed
        self.encoders = {name: EncodeOnce(encoder) for name, encoder in methods.encoders.items()}
        self.utterances = _shared_utterances(self.size.points)
        self.texts = self.utterances["text"].tolist()
        self.own = DataFrame({"text": list(sentences), "intent": OWN, "corpus": OWN})
        self.plane = cache(self._plane)

    def map(self, method: str = RAW) -> Panel:
        """The map of one method, to be chosen."""

        def show(encoder: str) -> list:
            return [self._map((encoder,), self.size.projections, COLOURS)]

        return Panel(show, encoder=Control("encoder", method, tuple(self.encoders)))

    def compare(self, left: str = RAW, right: str = "DSE") -> Panel:
        """Two methods next to each other: maps, numbers, and utterances that only one of them places well."""

        def show(left: str, right: str) -> list:
            both = tuple(dict.fromkeys((left, right)))
            return [self._map(both, ("tsne",), COLOURS[:2]), self.numbers(both), *self.differences(left, right)]

        names = tuple(self.encoders)
        return Panel(show, left=Control("left", left, names), right=Control("right", right, names))

    def numbers(self, methods: Sequence[str]) -> Styler:
        """How well intents, and how badly corpora, are told apart by the space of each method."""
        columns = {}
        for name in methods:
            vectors = self.encoders[name].encode(self.texts)
            columns[name] = {"nearest utterance has the same intent": f"{100 * self.placed_well[name].mean():.0f} %"}
            for by in ("intent", "corpus"):
                score = silhouette_score(vectors, self.utterances[by], metric="cosine")
                columns[name][f"silhouette by {by} (-1 to 1)"] = f"{score:.2f}"
        return table(DataFrame(columns), "Two spaces in numbers", index=True)

    def differences(self, left: str, right: str, count: int = 4) -> list[Styler]:
        """Utterances that one method puts next to their own intent and the other does not."""
        rows = []
        for winner, loser in ((left, right), (right, left)):
            only_here = np.flatnonzero(self.placed_well[winner] & ~self.placed_well[loser])
            for place in thin(only_here.tolist(), count):
                row = {"utterance": self.texts[place], "right for": winner}
                for name in (left, right):
                    row[f"its neighbour for {name}"] = self.texts[self.neighbour[name][place]]
                rows.append(row)
        return [table(DataFrame(rows), "Right for one of the two only")] if rows else []

    @cached_property
    def neighbour(self) -> dict[str, np.ndarray]:
        """For each method, the place of the nearest other utterance."""
        places = {}
        for name, encoder in self.encoders.items():
            vectors = encoder.encode(self.texts)
            first, second = nearest(vectors, vectors, 2)[1].T
            places[name] = np.where(first == np.arange(len(first)), second, first)
        return places

    @cached_property
    def placed_well(self) -> dict[str, np.ndarray]:
        """For each method: has the nearest other utterance the same intent?"""
        intents = self.utterances["intent"].to_numpy()
        return {name: intents[places] == intents for name, places in self.neighbour.items()}

    def _map(self, methods: Sequence[str], projections: Sequence[str], colours: tuple[str, ...]) -> SpaceMap:
        planes = [self.plane(method, projection) for method in methods for projection in projections]
        title = f"What people ask, seen by {' and '.join(methods)}"
        return SpaceMap(stacked(planes), colours, title)

    def _plane(self, method: str, projection: str) -> DataFrame:
        """All points on a plane, with what a map says of them."""
        placed = DataFrame(self.placed_well)
        raw, trained = placed[RAW], placed.drop(columns=RAW)
        label = Series("right for none", placed.index)
        label[raw] = "right for raw, not for all"
        label[~raw & trained.any(axis=1)] = "right for trained ones only"
        label[placed.all(axis=1)] = "right for all"
        names = [", ".join(placed.columns[row]) or "none" for row in placed.to_numpy()]
        right = [f"\nnearest is right for: {name}" for name in names]
        marked = self.utterances.assign(method=label, right=right)
        points = stacked([marked, self.own.assign(method=OWN, right="")])
        points["detail"] = points["intent"] + ", " + points["corpus"] + points["right"]
        vectors = self.encoders[method].encode(points["text"].tolist())
        plane = project(vectors, projection, seed=self.seed).drop(columns="method")
        return plane.join(points).assign(panel=method, projection=METHODS[projection])


def _shared_utterances(count: int) -> DataFrame:
    """Text, intent and corpus of utterances that ask for the same in several corpora, those of test splits first."""
    variants, rows = dict(INTENT_SETS.values()), []
    for intent, named in read_yaml(__file__, "intents.yaml").items():
        for corpus, name in named.items():
            records = load(f"bundled/{corpus}", variants[corpus]).filter(intent=name, split=("test", "train"))
            texts = [*records.filter(split="test").texts(), *records.texts()]
            for text in thin(list(dict.fromkeys(texts)), count):
                rows.append({"text": text, "intent": intent, "corpus": corpus})
    return DataFrame(rows)
