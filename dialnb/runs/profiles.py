"""Parameters and profiles of a paper: `papers/<slug>/profiles.yaml` in, checked settings out, before anything starts.

    parameters:                       # everything that can be set, with its type, default and meaning
      steps: {type: int, default: 200, min: 1, help: training steps per model}
      seeds: {type: "list[int]", default: [1], help: seeds of the few-shot splits}
    profiles:                         # what each size changes
      smoke: {steps: 2}
      quick: {}
    needs:                            # per profile: datasets (a variant after a colon) and encoders
      smoke: {data: [bundled/SGD], encoders: [mini]}

Types: int, float, str, bool, encoder (a bundled name, a folder or a hub id; `choices` are names it may have besides),
"list[...]" of those, and a question mark after the type where null is allowed. What takes names says which (`choices`).
Numbers are at least 0 and at most 2,147,483,647 unless `min`, `above` or `max` say otherwise.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from tabulate import tabulate

from dialnb.claims.papers import SLUGS
from dialnb.errors import BadParameter, DataError, DialnbError, UnknownName, check_known
from dialnb.files import Fields, Values, as_list, digest_of, project_root, read_yaml
from dialnb.models.places import encoder_name

PROFILES = ("smoke", "quick", "gpu", "paper")
KINDS: dict[str, tuple[Any, str, str]] = {
    "int": (int, "a whole number", "whole numbers"),
    "float": (float, "a number", "numbers"),
    "str": (str, "text", "names"),
    "bool": (bool, "true or false", "true or false"),
    "encoder": (str, "a bundled encoder, a folder or a hub id", "bundled encoders, folders or hub ids"),
}
"""What a value of each kind is in Python and, as one and as the items of a list, in words."""
FIELDS, OPTIONAL = {"type", "default", "help"}, {"choices", "min", "above", "max"}
LARGEST = 2**31 - 1
"""The largest number that every library takes as a seed or a count."""
HUB_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.|\.git$))\w([\w.-]*\w)?(/\w([\w.-]*\w)?)?", re.ASCII)
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
BY_HAND = "set by hand"


class UnknownParameter(UnknownName, AttributeError):
    """An attribute of the settings that is not a parameter."""


@dataclass(frozen=True)
class Parameter:
    """One thing that can be set: its type, default, meaning and the values it may take."""

    name: str
    type: str
    default: Any
    help: str
    choices: tuple = ()
    min: float = 0
    above: float | None = None
    max: float = LARGEST

    @property
    def kind(self) -> str:
        """The type of the value, or of the items of a list."""
        return self.type.removesuffix("?").removeprefix("list[").removesuffix("]")

    @property
    def is_list(self) -> bool:
        return self.type.startswith("list[")

    @property
    def is_optional(self) -> bool:
        return self.type.endswith("?")

    @property
    def is_number(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def allowed(self) -> str:
        """Kind and limits in words, as messages and help show them."""
        words, listed = KINDS[self.kind][1 + self.is_list], f"one of {', '.join(map(show, self.choices))}"
        if self.choices and self.kind == "encoder":
            words += f", or {listed}"
        elif self.choices:
            words = f"{words}, each of them {listed}" if self.is_list else listed
        elif self.is_number:
            least = f"at least {self.min}" if self.above is None else f"above {self.above}"
            words += f", {least}, at most {self.max}"
        words += ", or none" if self.is_optional else ""
        return words + (" (a list: A,B or '[A, B]')" if self.is_list else "")

    def check(self, value: Any) -> Any:
        """The value in its declared type; a list, or a text that is written as one, comes back as a tuple."""
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self._check_one(value)
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, list | tuple) or (not value and self.default and self.is_number):
            raise self._bad(value)
        items = tuple(map(self._check_one, value))
        if len(set(items)) < len(items):
            raise BadParameter(f"parameter '{self.name}' has a value more than once: {show(items)} ({self.help})")
        return items

    def parse(self, text: str) -> Any:
        """The value that was typed after `--set name=`: a list as `A,B` or `[A, B]`, an item with a comma in quotes."""
        if text in ("null", "none") and self.is_optional:
            return None
        if not self.is_list:
            return self.check(self._typed(text))
        try:
            items = yaml.load(text if text.startswith("[") else f"[{text}]", yaml.BaseLoader)
        except yaml.YAMLError:
            raise self._bad(text) from None
        return self.check([self._typed(item) for item in items])

    def _typed(self, text: str) -> Any:
        try:
            return WORDS[text.lower()] if self.kind == "bool" else KINDS[self.kind][0](text)
        except (ValueError, LookupError, TypeError):
            raise self._bad(text) from None

    def _check_one(self, value: Any) -> Any:
        if self.kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not KINDS[self.kind][0]:
            raise self._bad(value)
        fits = not self.choices or value in self.choices
        if self.is_number:  # NaN is in no range
            fits = fits and (value >= self.min if self.above is None else value > self.above) and value <= self.max
        if self.kind == "encoder" and value not in self.choices:
            is_folder = value != "" and (Path(value).expanduser() / "config.json").is_file()
            fits = is_folder or HUB_ID.fullmatch(value) is not None
        if not fits and not value == self.default == "":
            raise self._bad(value)
        return value

    def _bad(self, value: Any) -> BadParameter:
        near = difflib.get_close_matches(show(value), map(show, self.choices), n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        verb = "has" if self.is_list else "is"
        return BadParameter(f"parameter '{self.name}' must be {self.allowed}, but {verb} {value!r}{hint} ({self.help})")


@dataclass(frozen=True)
class Settings(Mapping):
    """The values of one run, by attribute or by name; shown as a table with their meaning and where they come from.

    >>> Settings({"steps": 2}).steps
    2
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
        return self.given[name]

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
        rows = self.given.items()
        return [(name, show(value), self.origin.get(name, ""), self.helps.get(name, "")) for name, value in rows]


@dataclass(frozen=True)
class Profiles:
    """Everything that `profiles.yaml` says of one paper."""

    slug: str
    parameters: Mapping[str, Parameter]
    profiles: Mapping[str, Fields]
    needs: Mapping[str, Mapping[str, list[str]]]

    def resolve(self, profile: str, seed: int = 1, encoder: str = "", overrides: Fields | None = None) -> Settings:
        """The checked values: defaults, then the profile, then `encoder` and `overrides`; seed is always among them."""
        check_known(f"profile of {self.slug}", str(profile), self.profiles)
        by_hand = {**(overrides or {}), **({"encoder": encoder} if encoder else {})}
        values = {"seed": SEED.check(seed)} | {name: p.default for name, p in self.parameters.items()}
        origin = {"seed": "run"} | dict.fromkeys(self.parameters, "default")
        for source, changes in ((f"profile {profile}", self.profiles[profile]), (BY_HAND, by_hand)):
            for name, value in changes.items():
                values[name], origin[name] = self.parameter(name).check(value), source
        helps = {"seed": SEED.help} | {name: p.help for name, p in self.parameters.items()}
        return Settings(MappingProxyType(values), origin, helps)

    def takes(self, name: str, settings: Fields) -> bool:
        """Whether settings ask for a model, a table or a further encoder: where a parameter offers it (as a choice, or
        in some profile), it must be set."""
        asked = [""]
        offered: list[Any] = []
        for key, parameter in self.parameters.items():
            if parameter.is_list or (parameter.kind == "encoder" and key != "encoder"):
                asked += as_list(settings[key])
                offered += parameter.choices
                for changes in self.profiles.values():
                    offered += as_list(changes.get(key))
        return name in asked or name not in offered

    def parameter(self, name: str) -> Parameter:
        check_known(f"parameter of {self.slug}", name, self.parameters)
        return self.parameters[name]

    def encoders(self, settings: Settings, by_hand: bool = False) -> list[str]:
        """The encoders that the settings name, or those set by hand; without shapes, which are made here."""
        named = []
        for key, parameter in self.parameters.items():
            if parameter.kind == "encoder" and (not by_hand or key in settings.by_hand):
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


SEED = Parameter("seed", "int", 1, "seed of everything random in the run")


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
    parameters: dict[str, Parameter] = {}
    profiles = {name: values or {} for name, values in raw["profiles"].items()}
    made = Profiles(slug, parameters, profiles, raw.get("needs") or {})
    try:
        for name, entry in raw["parameters"].items():
            if not FIELDS <= entry.keys() <= FIELDS | OPTIONAL:
                raise DataError(f"parameter {name!r} needs type, default and help, but has {', '.join(entry)}")
            parameter = Parameter(name, **{**entry, "choices": tuple(entry.get("choices", ()))})
            check_known(f"type of parameter {name!r}", parameter.kind, KINDS)
            parameters[name] = replace(parameter, default=parameter.check(parameter.default))
        for name in profiles:
            check_known("profile", name, PROFILES)
            made.resolve(name)
    except DialnbError as error:
        raise DataError(f"{where}: {error}") from error
    return made


def run_name(slug: str, profile: str, seed: int = 1, encoder: str = "", overrides: Mapping | None = None) -> str:
    """The folder of a run: paper, profile and seed, and whatever else was set by hand.

    >>> run_name("dse", "quick", 2, "org/bert")
    'dse-quick-seed2-org-bert'
    """
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", encoder_name(encoder) if encoder else "").strip("-")
    mark = digest_of(json.dumps(overrides, sort_keys=True, default=str))[:8] if overrides else ""
    return "-".join(part for part in (slug, profile, f"seed{seed}", plain, mark) if part)


def show(value: Any) -> str:
    """A value as it is typed after `--set`."""
    if isinstance(value, list | tuple):
        return ",".join(f'"{item}"' if "," in str(item) else show(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
