"""Sentences of one's own among those of the corpora: how similar, next to which, and where on the map."""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from pandas import DataFrame
from pandas.io.formats.style import Styler
from sklearn.metrics import silhouette_score

from dialnb.data import load
from dialnb.evaluation import EncodeOnce, SupportsEncode, as_encoder, nearest, normalise, stacked
from dialnb.evaluation.bundled import INTENT_SETS
from dialnb.evaluation.projection import METHODS, project
from dialnb.examples.readings import thin
from dialnb.explore.maps import OWN, SpaceMap
from dialnb.explore.panels import Control, lines_of, panel, table
from dialnb.files import read_yaml

COLOURS = ("intent", "corpus", "method")


def similarities(encoder: SupportsEncode, sentences: Sequence[str]) -> Styler:
    """The cosine of every two sentences; a row is named by its sentence, a column by its number."""
    vectors = normalise(as_encoder(encoder).encode(list(sentences)))
    numbers = range(1, len(sentences) + 1)
    names = [f"{number}. {text}" for number, text in zip(numbers, sentences)]
    cosines = DataFrame(vectors @ vectors.T, names, numbers).round(2)
    return table(cosines, index=True, formats="{:.2f}").background_gradient("Blues", vmin=0.2, vmax=1.1)


def requests(each: int) -> DataFrame:
    """Text, intent and corpus of so many test utterances of each of the bundled intent corpora."""
    rows = []
    for corpus, variant in INTENT_SETS.values():
        for record in thin(list(load(f"bundled/{corpus}", variant).filter(split="test")), each):
            rows.append({"text": record.text, "intent": record.intent.replace("_", " "), "corpus": corpus})
    return DataFrame(rows)


def neighbours(encoders: Mapping[str, SupportsEncode], sentences: Sequence[str], each: int = 192) -> None:
    """What each sentence is next to among ``each`` requests of every corpus, for one encoder or another."""
    known = requests(each)
    once = {name: EncodeOnce(encoder) for name, encoder in encoders.items()}

    def show(sentences: str, encoder: str) -> list[Styler]:
        asked = lines_of(sentences, "sentences")
        references = once[encoder].encode(known["text"].tolist())
        cosines, places = nearest(once[encoder].encode(asked), references, 3)
        near = known.iloc[places.ravel()].reset_index(drop=True).rename(columns={"text": "is next to"})
        near.insert(0, "your sentence", [text for sentence in asked for text in (sentence, "", "")])
        near.insert(2, "similarity", cosines.ravel())
        return [table(near, formats={"similarity": "{:.2f}"})]

    names = tuple(encoders)
    panel(
        show,
        sentences=Control("Your sentences, one a line:", "\n".join(sentences)),
        encoder=Control("encoder", names[-1], names),
    )


class Space:
    """Utterances of shared intents in the spaces of several encoders, and one's own sentences among them.

    Args:
        encoders: by name; the first is the one that the others started from.
        sentences: one's own.
        each: utterances of each intent and corpus.
        projections: those of the map.
        seed: of the projections.
    """

    def __init__(
        self,
        encoders: Mapping[str, SupportsEncode],
        sentences: Sequence[str] = (),
        each: int = 12,
        projections: Sequence[str] = ("tsne", "umap"),
        seed: int = 1,
    ) -> None:
        self.names = tuple(encoders)
        self.projections = projections
        self.seed = seed
        self.utterances = shared_utterances(each)
        self.own = DataFrame({"text": list(sentences), "intent": OWN, "corpus": OWN})
        self.texts = self.utterances["text"]
        intents = self.utterances["intent"].to_numpy()
        self.encoders = {name: EncodeOnce(encoder) for name, encoder in encoders.items()}
        self.vectors = {name: encoder.encode(self.texts.tolist()) for name, encoder in self.encoders.items()}
        self.nearest = {name: nearest_others(vectors) for name, vectors in self.vectors.items()}
        self.right = DataFrame({name: intents[places] == intents for name, places in self.nearest.items()})
        """For each encoder: has the nearest other utterance the same intent?"""
        self.plane = cache(self._plane)

    def map(self, encoder: str) -> None:
        """The map of one encoder, to be chosen."""

        def show(encoder: str) -> list[SpaceMap]:
            return [self._map((encoder,), self.projections, COLOURS)]

        panel(show, encoder=Control("encoder", encoder, self.names))

    def compare(self, left: str, right: str) -> None:
        """Two encoders next to each other: maps, numbers, and utterances that only one of them places well."""

        def show(left: str, right: str) -> list[SpaceMap | Styler]:
            both = tuple(dict.fromkeys((left, right)))
            only_one = self.differences(left, right)
            tables = [table(only_one, "Right for one of the two only")] if len(only_one) else []
            return [self._map(both, ("tsne",), COLOURS[:2]), self.numbers(both), *tables]

        panel(show, left=Control("left", left, self.names), right=Control("right", right, self.names))

    def numbers(self, names: Sequence[str]) -> Styler:
        """How well intents, and how badly corpora, are told apart by the space of each encoder."""
        shares = 100 * self.right[list(names)].mean()
        rows = {"nearest utterance has the same intent": shares.map("{:.0f} %".format)}
        for by in ("intent", "corpus"):
            scores = (silhouette_score(self.vectors[name], self.utterances[by], metric="cosine") for name in names)
            rows[f"silhouette by {by} (-1 to 1)"] = [f"{score:.2f}" for score in scores]
        return table(DataFrame(rows, names).T, "Two spaces in numbers", index=True)

    def differences(self, left: str, right: str, count: int = 4) -> DataFrame:
        """Utterances that one encoder puts next to their own intent and the other does not."""
        rows = []
        for winner, loser in ((left, right), (right, left)):
            only_here = np.flatnonzero(self.right[winner] & ~self.right[loser])
            for place in thin(only_here.tolist(), count):
                row = {"utterance": self.texts[place], "right for": winner}
                for name in (left, right):
                    row[f"its neighbour for {name}"] = self.texts[self.nearest[name][place]]
                rows.append(row)
        return DataFrame(rows)

    def _map(self, names: Sequence[str], projections: Sequence[str], colours: tuple[str, ...]) -> SpaceMap:
        planes = [self.plane(name, projection) for name in names for projection in projections]
        return SpaceMap(stacked(planes), colours, f"What people ask, seen by {' and '.join(names)}")

    def _plane(self, name: str, projection: str) -> DataFrame:
        """All points on a plane, with what a map says of them."""
        raw = self.right[self.names[0]]
        cases = {
            "right for all": self.right.all(axis=1),
            "right for trained ones only": ~raw & self.right.any(axis=1),
            f"right for {self.names[0]}, not for all": raw,
        }
        method = np.select([*cases.values()], [*cases], "right for none")
        right_for = [", ".join(self.right.columns[row]) or "none" for row in self.right.to_numpy()]
        marked = self.utterances.assign(method=method, right=right_for)
        marked["right"] = "\nnearest is right for: " + marked["right"]
        points = stacked([marked, self.own.assign(method=OWN, right="")])
        points["detail"] = points["intent"] + ", " + points["corpus"] + points["right"]
        vectors = self.encoders[name].encode(points["text"].tolist())
        plane = project(vectors, projection, seed=self.seed).drop(columns="method")
        return plane.join(points).assign(panel=name, projection=METHODS[projection])


def nearest_others(vectors: np.ndarray) -> np.ndarray:
    """For each vector, the place of the nearest other one."""
    first, second = nearest(vectors, vectors, 2)[1].T
    return np.where(first == np.arange(len(first)), second, first)


def shared_utterances(each: int) -> DataFrame:
    """Text, intent and corpus of utterances that ask for the same in several corpora, those of test splits first."""
    variants, rows = dict(INTENT_SETS.values()), []
    for intent, names in read_yaml(__file__, "intents.yaml").items():
        for corpus, name in names.items():
            records = load(f"bundled/{corpus}", variants[corpus]).filter(intent=name, split=("test", "train"))
            texts = [*records.filter(split="test").texts(), *records.texts()]
            for text in thin(list(dict.fromkeys(texts)), each):
                rows.append({"text": text, "intent": intent, "corpus": corpus})
    return DataFrame(rows)
