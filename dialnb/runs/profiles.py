"""Parameters and profiles of a paper: `papers/<slug>/profiles.yaml` in, checked settings out, before anything starts.

    parameters:                       # everything that can be set, with its type, default and meaning
      steps: {type: int, default: 200, min: 1, help: training steps per model}
      seeds: {type: "list[int]", default: [1], help: seeds of the few-shot splits}
    train:                            # what is trained: each may have any of `TrainingSettings` of its own
      DSE: DSE and its multi-turn variants
    profiles:                         # what each size changes
      smoke: {steps: 2, train: {DSE: {epochs: 1}}}
      quick: {}
    needs:                            # per profile: datasets (a variant after a colon) and encoders
      smoke: {data: [bundled/SGD], encoders: [mini]}

Types: int, float, str, bool, encoder (a bundled name, a folder or a hub id; `choices` are names it may have besides),
"list[...]" of those, and a question mark after the type where null is allowed. What takes names says which (`choices`).
Numbers are at least 0 and at most 2,147,483,647 unless `min`, `above` or `max` say otherwise. By its full name a
setting of a training is `train.DSE.epochs`, on the command line as in a notebook.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from tabulate import tabulate

from dialnb.claims.papers import SLUGS
from dialnb.errors import BadParameter, DataError, DialnbError, UnknownName, check_known
from dialnb.files import Fields, Values, as_list, digest_of, project_root, read_yaml
from dialnb.models.places import encoder_name
from dialnb.training.settings import FIELDS
from dialnb.typed import LARGEST, Parameter, show

PROFILES = ("smoke", "quick", "gpu", "paper")
NEEDED, OPTIONAL = {"type", "default", "help"}, {"choices", "min", "above", "max"}
HUB_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.|\.git$))\w([\w.-]*\w)?(/\w([\w.-]*\w)?)?", re.ASCII)
BY_HAND = "set by hand"
SEED = Parameter("seed", Annotated[int, Field(ge=0, le=LARGEST)], 1, "seed of everything random in the run")


def _is_encoder(name: str) -> str:
    if HUB_ID.fullmatch(name) or (name != "" and (Path(name).expanduser() / "config.json").is_file()):
        return name
    raise ValueError


KINDS: dict[str, Any] = {
    "int": int,
    "float": Annotated[float, Field(allow_inf_nan=False)],
    "str": str,
    "bool": bool,
    "encoder": Annotated[str, AfterValidator(_is_encoder), WithJsonSchema({"type": "encoder"})],
}


class UnknownParameter(UnknownName, AttributeError):
    """An attribute of the settings that is not a parameter."""


@dataclass(frozen=True)
class Settings(Mapping):
    """The values of one run, by attribute or by name; shown as a table with their meaning and where they come from.

    `train` has the settings of trainings by recipe; one of them is also found by its full name.

    >>> s = Settings({"steps": 2, "train": {"DSE": {"epochs": 3.0}}})
    >>> s.steps, s.train["DSE"], s["train.DSE.epochs"]
    (2, {'epochs': 3.0}, 3.0)
    """

    given: Fields
    origin: Mapping[str, str] = field(default_factory=dict)
    helps: Mapping[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self.given:
            raise UnknownParameter("parameter", name, self.given)
        return self.given[name]

    @property
    def by_hand(self) -> list[str]:
        """The parameters that were set by hand."""
        return [name for name, origin in self.origin.items() if origin == BY_HAND]

    def __getitem__(self, name: str) -> Any:
        return reduce(getitem, str(name).split("."), self.given)  # a reader may ask for a number instead of a name

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.given]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.given)

    def __repr__(self) -> str:
        return tabulate([row[:3] for row in self._rows()], tablefmt="plain", disable_numparse=True)

    def _repr_html_(self) -> str:
        table = tabulate(self._rows(), ("parameter", "value", "from", "meaning"), "html", disable_numparse=True)
        return re.sub("<(t[hd])>", r"<\1 style='text-align:left'>", table)

    def _rows(self) -> list[tuple[str, ...]]:
        return [(name, show(self[name]), origin, self.helps[name]) for name, origin in self.origin.items()]


@dataclass(frozen=True)
class Profiles:
    """Everything that `profiles.yaml` says of one paper."""

    slug: str
    parameters: Mapping[str, Parameter]
    train: Mapping[str, str]
    profiles: Mapping[str, Fields]
    needs: Mapping[str, Mapping[str, list[str]]]

    def resolve(self, profile: str, seed: int = 1, encoder: str = "", overrides: Fields | None = None) -> Settings:
        """The checked values: defaults, then the profile, then `encoder` and `overrides`; seed is always among them."""
        check_known(f"profile of {self.slug}", str(profile), self.profiles)
        by_hand = {**flat(overrides or {}), **({"encoder": encoder} if encoder else {})}
        values = {"seed": SEED.check(seed)} | {name: p.default for name, p in self.parameters.items()}
        train: dict[str, Values] = {row: {} for row in self.train}
        origin = {"seed": "run"} | dict.fromkeys(self.parameters, "default")
        helps = {"seed": SEED.help} | {name: p.help for name, p in self.parameters.items()}
        for source, changes in ((f"profile {profile}", self.profiles[profile]), (BY_HAND, by_hand)):
            for name, value in changes.items():
                parameter = self.parameter(name)
                row, _, key = name.removeprefix("train.").rpartition(".")
                (train[row] if row else values)[key] = parameter.check(value)
                origin[name], helps[name] = source, parameter.help
        return Settings(MappingProxyType(values | ({"train": train} if train else {})), origin, helps)

    def takes(self, name: str, settings: Fields) -> bool:
        """Whether settings ask for a model, a table or a further encoder: where a parameter offers it (as a choice, or
        in some profile), it must be set."""
        asked = [""]
        offered: list[Any] = []
        for key, parameter in self.parameters.items():
            if parameter.is_list or ("encoder" in parameter.types and key != "encoder"):
                asked += as_list(settings[key])
                offered += parameter.choices
                for changes in self.profiles.values():
                    offered += as_list(changes.get(key))
        return name in asked or name not in offered

    def parameter(self, name: str) -> Parameter:
        """What is known of a parameter, or of a setting of a training by its full name."""
        if name.startswith("train."):
            row, _, key = name.removeprefix("train.").rpartition(".")
            check_known(f"training of {self.slug}", row or key, self.train)
            check_known("training setting", key, FIELDS)
            return Parameter(name, FIELDS[key].kind, help=self.train[row])
        check_known(f"parameter of {self.slug}", name, self.parameters)
        return self.parameters[name]

    def encoders(self, settings: Settings, by_hand: bool = False) -> list[str]:
        """The encoders that the settings name, or those set by hand; without shapes, which are made here."""
        named = []
        for key, parameter in self.parameters.items():
            if "encoder" in parameter.types and (not by_hand or key in settings.by_hand):
                named += [name for name in as_list(settings[key]) if name not in ("", None, *parameter.choices)]
        return list(dict.fromkeys(named))

    def needed(self, profile: str, settings: Settings) -> tuple[list[str], list[str]]:
        """The datasets and the encoders that a run in a profile needs."""
        declared = self.needs.get(profile) or {}
        encoders = dict.fromkeys([*declared.get("encoders", ()), *self.encoders(settings)])
        return list(declared.get("data", ())), list(encoders)

    def parse(self, items: Iterable[str]) -> Values:
        """`["steps=3", "seeds=1,2"]` as typed values."""
        return {name: self.parameter(name).parse(text) for name, text in named_values(items, "--set").items()}


def named_values(items: Iterable[str], option: str) -> dict[str, str]:
    """What was typed as NAME=VALUE after an option of the command line."""
    found = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise BadParameter(f"{option} takes NAME=VALUE, but was given '{item}'")
        found[name.strip()] = text.strip()
    return found


def flat(changes: Fields) -> Values:
    """Changes by their full names: those of trainings may be nested, as in `profiles.yaml`."""
    rows = {f"train.{row}": values for row, values in changes.get("train", {}).items()}
    nested = {f"{row}.{key}": value for row, values in rows.items() for key, value in values.items()}
    return {name: value for name, value in changes.items() if name != "train"} | nested


def known_papers(root: Path) -> list[str]:
    """Slugs of the papers of a project: the five in their order, then others by name."""
    found = {path.parent.name for path in (root / "papers").glob("*/paper.yaml")}
    return [slug for slug in SLUGS if slug in found] + sorted(found - set(SLUGS))


def load_profiles(slug: str, root: Path | None = None) -> Profiles:
    """Read and check one paper's `profiles.yaml`."""
    root = project_root(root)
    check_known("paper", slug, known_papers(root))
    path = root / "papers" / slug / "profiles.yaml"
    if not path.is_file():
        raise DataError(f"expected the parameters of {slug} in {path}, found no such file; the paper cannot run yet")
    return parse_profiles(slug, read_yaml(path), str(path))


def parse_profiles(slug: str, raw: Fields, where: str) -> Profiles:
    """Turn parsed YAML into `Profiles`; every default and profile value is checked against the types."""
    try:
        parameters = {name: _parameter(name, entry) for name, entry in raw["parameters"].items()}
        profiles = {name: flat(values or {}) for name, values in raw["profiles"].items()}
        made = Profiles(slug, parameters, raw.get("train") or {}, profiles, raw.get("needs") or {})
        for name in profiles:
            check_known("profile", name, PROFILES)
            made.resolve(name)
    except DialnbError as error:
        raise DataError(f"{where}: {error}") from error
    return made


def _parameter(name: str, entry: Fields) -> Parameter:
    """A parameter of what `profiles.yaml` says of it."""
    if not NEEDED <= entry.keys() <= NEEDED | OPTIONAL:
        raise DataError(f"parameter {name!r} needs type, default and help, but has {', '.join(entry)}")
    plain, default, choices = entry["type"].removesuffix("?"), entry["default"], tuple(entry.get("choices", ()))
    item = plain.removeprefix("list[").removesuffix("]")
    check_known(f"type of parameter {name!r}", item, KINDS)
    kind = KINDS[item]
    if item in ("int", "float"):
        least: Values = {"gt": entry["above"]} if "above" in entry else {"ge": entry.get("min", 0)}
        kind = Annotated[kind, Field(le=entry.get("max", LARGEST), **least)]
    elif choices:
        kind = kind | Literal[choices] if item == "encoder" else Literal[choices]
    if default == "":
        kind = kind | Literal[""]
    if plain != item:
        some = int(bool(default) and item in ("int", "float"))
        kind = Annotated[tuple[kind, ...], Field(min_length=some)]  # type: ignore[valid-type]
    made = Parameter(name, kind | None if plain != entry["type"] else kind, default, entry["help"])
    made.default = made.check(default)
    return made


def run_name(slug: str, profile: str, seed: int = 1, encoder: str = "", overrides: Mapping | None = None) -> str:
    """The folder of a run: paper, profile and seed, and whatever else was set by hand.

    >>> run_name("dse", "quick", 2, "org/bert")
    'dse-quick-seed2-org-bert'
    """
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", encoder_name(encoder) if encoder else "").strip("-")
    mark = digest_of(json.dumps(overrides, sort_keys=True, default=str))[:8] if overrides else ""
    return "-".join(part for part in (slug, profile, f"seed{seed}", plain, mark) if part)
