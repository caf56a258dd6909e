"""Parameters and profiles of a paper: `papers/<slug>/profiles.yaml` in, checked settings out, before anything starts.

    parameters:                       # everything that can be set, with its type, default and meaning
      steps: {type: int, default: 200, min: 1, help: training steps per model}
      seeds: {type: "list[int]", default: [1], help: seeds of the few-shot splits}
    profiles:                         # what each size changes
      smoke: {steps: 2}
      quick: {}
    conflicts:                        # values that contradict each other, and why
      - {between: [{pooling: cls}, {normalise: true}], because: "..."}
    needs:                            # per profile: datasets (a variant after a colon) and encoders
      smoke: {data: [bundled/SGD], encoders: [mini]}
    plan:                             # for --dry-run; `models` and `steps` may be expressions over the parameters
      - {stage: train, models: [DSE, SimCSE], steps: steps}

Types: int, float, str, bool, encoder (a bundled name, a folder or a hub id; `choices` are names it may have besides),
"list[...]" of those, and a question mark after the type where null is allowed. What takes names says which (`choices`).
Numbers are at least 0 and at most 2,147,483,647 unless `min`, `above` or `max` say otherwise.
"""

from __future__ import annotations

import csv
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from dialnb.errors import BadParameter, DataError, DialnbError, UnknownName

PROFILES = ("smoke", "quick", "gpu", "paper")
FIELDS = {"type", "default", "help", "choices", "min", "above", "max"}
SCALARS = {"int": int, "float": float, "str": str, "bool": bool, "encoder": str}
KINDS = {
    "int": ("a whole number", "whole numbers"),
    "float": ("a number", "numbers"),
    "str": ("text", "names"),
    "bool": ("true or false", "true or false"),
    "encoder": ("a bundled encoder, a folder or a hub id", "bundled encoders, folders or hub ids"),
}
"""What a value of each kind is, and the items of a list, in words."""
LARGEST = 2**31 - 1
"""The largest number that every library takes as a seed or a count."""
HUB_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.|\.git$))\w([\w.-]*\w)?(/\w([\w.-]*\w)?)?", re.ASCII)
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


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
    min: float | None = None
    above: float | None = None
    max: float | None = None

    @property
    def kind(self) -> str:
        """The type of the value, or of the items of a list."""
        return self.type.removesuffix("?").removeprefix("list[").removesuffix("]")

    @property
    def is_list(self) -> bool:
        return self.type.startswith("list[")

    @property
    def limits(self) -> tuple[float | None, float]:
        """The least and the largest number; what is said to be above a number has no least one."""
        least = 0 if self.min is None and self.above is None else self.min
        return least, LARGEST if self.max is None else self.max

    @property
    def allowed(self) -> str:
        """Kind and limits in words, as messages and help show them."""
        words = [KINDS[self.kind][self.is_list]]
        if self.kind in ("int", "float") and not self.choices:
            least, most = self.limits
            words += [f"above {self.above}" if least is None else f"at least {least}", f"at most {most}"]
        if self.choices:
            words[:1] = [] if self.kind == "str" and not self.is_list else words[:1]
            one = "or one of" if self.kind == "encoder" else "each of them one of" if self.is_list else "one of"
            words += [f"{one} {', '.join(map(show, self.choices))}"]
        words += ["or none"] if self.type.endswith("?") else []
        return ", ".join(words) + (f" (a list: {self.example})" if self.is_list else "")

    @property
    def example(self) -> str:
        """The two ways to write a list."""
        others = {"int": (1, 2), "float": (0.1, 0.2)}.get(self.kind, ("A", "B"))
        two = (*(self.choices or self.default or ()), *others)[:2]
        return f"{self.name}={show(two)} or '{self.name}=[{', '.join(map(show, two))}]'"

    def check(self, value: Any) -> Any:
        """The value in its declared type; a list, or a text that is written as one, comes back as a tuple."""
        if value is None and self.type.endswith("?"):
            return None
        if not self.is_list:
            return self._check_one(value)
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, list | tuple):
            raise self._bad(value)
        items = tuple(map(self._check_one, value))
        if twice := [item for place, item in enumerate(items) if item in items[:place]]:
            raise BadParameter(f"parameter '{self.name}' has {show(twice[0])} more than once ({self.help})")
        if not items and self.default and self.kind in ("int", "float"):
            raise self._bad(items)
        return items

    def parse(self, text: str) -> Any:
        """The value that was typed after `--set name=`."""
        if text in ("null", "none") and self.type.endswith("?"):
            return None
        return self.check(list(map(self._parse_one, self._split(text))) if self.is_list else self._parse_one(text))

    def _split(self, text: str) -> list[str]:
        """The items of `A,B` or `[A, B]`; one with a comma in it stands in quotes."""
        inner = text.strip()
        if inner.startswith("[") != inner.endswith("]"):
            raise self._bad(text)
        inner = inner[1:-1] if inner.startswith("[") else inner
        quote = "'" if '"' not in inner else '"'
        items = next(csv.reader([inner], skipinitialspace=True, quotechar=quote), [])
        return [item.strip() for item in items if item.strip()]

    def _parse_one(self, text: str) -> Any:
        try:
            return WORDS[text.lower()] if self.kind == "bool" else SCALARS[self.kind](text)
        except (ValueError, KeyError):
            raise self._bad(text) from None

    def _check_one(self, value: Any) -> Any:
        if self.kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not SCALARS[self.kind]:
            raise self._bad(value)
        if self.kind in ("int", "float"):
            least, most = self.limits
            low = value <= self.above if least is None else value < least
            if low or not value <= most:  # which NaN is not
                raise self._bad(value)
        if value in self.choices or (value == self.default == ""):
            return value
        if self.choices and self.kind != "encoder":
            raise self._bad(value)
        if self.kind == "encoder" and not (_is_encoder_folder(value) or HUB_ID.fullmatch(value)):
            raise self._bad(value)
        return value

    def _bad(self, value: Any) -> BadParameter:
        near = difflib.get_close_matches(show(value), map(show, self.choices), n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        found = f"'{value}'" if value and isinstance(value, str) else show(value) or "empty"
        verb = "has" if self.is_list and value and not isinstance(value, list | tuple) else "is"
        return BadParameter(f"parameter '{self.name}' must be {self.allowed}, but {verb} {found}{hint} ({self.help})")


def _is_encoder_folder(name: str) -> bool:
    return bool(name) and (Path(name).expanduser() / "config.json").is_file()


@dataclass(frozen=True)
class Settings(Mapping):
    """The values of one run, by attribute or by name; shown as a table with their meaning and where they come from.

    >>> Settings({"steps": 2}).steps
    2
    """

    values: Mapping[str, Any]
    origin: Mapping[str, str] = field(default_factory=dict)
    helps: Mapping[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self.values:
            raise UnknownParameter("parameter", name, self.values)
        return self.values[name]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.values]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.values)

    def __repr__(self) -> str:
        rows = [(name, show(value), self.origin.get(name, "")) for name, value in self.values.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(f"{n:<{widths[0]}}  {v:<{widths[1]}}  {o}".rstrip() for n, v, o in rows)

    def _repr_html_(self) -> str:
        from html import escape

        said = [
            (name, show(value), self.origin.get(name, ""), self.helps.get(name, "")) for name, value in self.items()
        ]
        lines = [("th", ("parameter", "value", "from", "meaning")), *(("td", cells) for cells in said)]
        rows = [
            "<tr>" + "".join(f"<{tag} style='text-align:left'>{escape(text)}</{tag}>" for text in cells) + "</tr>"
            for tag, cells in lines
        ]
        return f"<table>{''.join(rows)}</table>"


@dataclass(frozen=True)
class Profiles:
    """Everything that `profiles.yaml` says of one paper."""

    slug: str
    parameters: Mapping[str, Parameter]
    profiles: Mapping[str, Mapping[str, Any]]
    conflicts: tuple[Mapping[str, Any], ...]
    needs: Mapping[str, Mapping[str, list[str]]]
    plan: tuple[Mapping[str, Any], ...]

    def resolve(
        self, profile: str, seed: int = 1, encoder: str = "", overrides: Mapping[str, Any] | None = None
    ) -> Settings:
        """The checked values: defaults, then the profile, then `encoder` and `overrides`; seed is always among them."""
        if profile not in self.profiles:
            raise UnknownName(f"profile of {self.slug}", str(profile), self.profiles)
        said = dict(overrides or {}) | ({"encoder": encoder} if encoder else {})
        values = {"seed": SEED.check(seed)} | {name: p.default for name, p in self.parameters.items()}
        origin = {"seed": "run"} | dict.fromkeys(self.parameters, "default")
        for source, changes in ((f"profile {profile}", self.profiles[profile]), ("set by hand", said)):
            for name, value in changes.items():
                values[name], origin[name] = self.parameter(name).check(value), source
        for conflict in self.conflicts:
            self._refuse(conflict, values)
        helps = {"seed": SEED.help} | {name: p.help for name, p in self.parameters.items()}
        return Settings(MappingProxyType(values), origin, helps)

    def offered(self, parameter: Parameter) -> set[Any]:
        """What a list may hold, or a further encoder may be: the choices, and what some profile has there."""
        if not parameter.is_list and (parameter.kind != "encoder" or parameter.name == "encoder"):
            return set()
        values = set(parameter.choices)
        for changes in self.profiles.values():
            value = changes.get(parameter.name) or ()
            values |= {value} if isinstance(value, str) else set(value)
        return values

    def parameter(self, name: str) -> Parameter:
        if name not in self.parameters:
            raise UnknownName(f"parameter of {self.slug}", name, self.parameters)
        return self.parameters[name]

    def encoders(self, settings: Settings, by_hand: bool = False) -> list[str]:
        """The encoders that the settings name, or those set by hand; without shapes, which are made here."""
        asked = [p for p in self.parameters.values() if p.kind == "encoder"]
        asked = [p for p in asked if not by_hand or settings.origin[p.name] == "set by hand"]
        named = {p: settings[p.name] if p.is_list else (settings[p.name],) for p in asked}
        return list(dict.fromkeys(n for p, names in named.items() for n in names if n and n not in p.choices))

    def parse(self, items: list[str]) -> dict[str, Any]:
        """`["steps=3", "seeds=1,2"]` as typed values."""
        found = {}
        for item in items:
            name, equals, text = item.partition("=")
            if not equals:
                raise BadParameter(f"--set takes name=value, but was given '{item}'")
            found[name.strip()] = self.parameter(name.strip()).parse(text.strip())
        return found

    def _refuse(self, conflict: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        pair = {name: value for side in conflict["between"] for name, value in side.items()}
        if all(values[name] == value for name, value in pair.items()):
            said = " and ".join(f"{name}={show(value)}" for name, value in pair.items())
            raise BadParameter(f"{self.slug}: {said} contradict each other: {conflict['because']}")


SEED = Parameter("seed", "int", 1, "seed of everything random in the run")


def project(root: Path | None = None) -> Path:
    """The folder with `papers/` and `notebooks/`: given, named by DIALNB_PROJECT, or the checkout."""
    from dialnb.claims.papers import project_root

    named = root or os.environ.get("DIALNB_PROJECT")
    if not named:
        return project_root()
    folder = Path(named).expanduser().absolute()
    if not (folder / "papers").is_dir():
        raise DataError(f"expected a folder papers/ in {folder} (from DIALNB_PROJECT or --project), found none")
    return folder


def known_papers(root: Path) -> list[str]:
    """Slugs of the papers of a project: the five in their order, then others by name."""
    from dialnb.claims.papers import SLUGS

    found = {path.parent.name for path in (root / "papers").glob("*/paper.yaml")}
    return [slug for slug in SLUGS if slug in found] + sorted(found - set(SLUGS))


def load_profiles(slug: str, root: Path | None = None) -> Profiles:
    """Read and check one paper's `profiles.yaml`."""
    root = project(root)
    if slug not in (known := known_papers(root)):
        raise UnknownName("paper", slug, known)
    path = root / "papers" / slug / "profiles.yaml"
    if not path.is_file():
        raise DataError(f"expected the parameters of {slug} in {path}, found no such file; the paper cannot run yet")
    return parse_profiles(slug, yaml.safe_load(path.read_text(encoding="utf-8")), str(path))


def parse_profiles(slug: str, raw: Mapping[str, Any], where: str) -> Profiles:
    """Turn parsed YAML into `Profiles`; every default, profile value and conflict is checked against the types."""
    parameters = {name: _parameter(name, entry, where) for name, entry in raw["parameters"].items()}
    for name in raw["profiles"]:
        if name not in PROFILES:
            raise UnknownName(f"profile in {where}", name, PROFILES)
    parts = {name: raw.get(name) or default for name, default in (("conflicts", ()), ("needs", {}), ("plan", ()))}
    profiles = {name: values or {} for name, values in raw["profiles"].items()}
    made = Profiles(slug, parameters, profiles, tuple(parts["conflicts"]), parts["needs"], tuple(parts["plan"]))
    try:
        for side in (side for conflict in made.conflicts for side in conflict["between"]):
            for name, value in side.items():
                made.parameter(name).check(value)
        for name in profiles:
            made.resolve(name)
    except DialnbError as error:
        raise DataError(f"{where}: {error}") from error
    return made


def _parameter(name: str, entry: Mapping[str, Any], where: str) -> Parameter:
    if stray := set(entry) - FIELDS:
        known = ", ".join(sorted(FIELDS))
        raise DataError(f"{where}: parameter {name!r} has unknown fields, {', '.join(sorted(stray))}; known: {known}")
    if missing := {"type", "default", "help"} - set(entry):
        raise DataError(f"{where}: parameter {name!r} lacks {', '.join(sorted(missing))}")
    made = Parameter(name, **{**entry, "choices": tuple(entry.get("choices", ()))})
    if made.kind not in SCALARS:
        raise UnknownName(f"type of parameter {name!r} in {where}", made.type, SCALARS)
    try:
        return Parameter(**{**vars(made), "default": made.check(made.default)})
    except BadParameter as error:
        raise DataError(f"{where}: {error}") from error


def show(value: Any) -> str:
    """A value as it is typed after `--set`."""
    if isinstance(value, list | tuple):
        return ",".join(f'"{item}"' if "," in str(item) else show(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
