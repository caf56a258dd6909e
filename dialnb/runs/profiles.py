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

Types: int, float, str, bool, "list[...]" of those, and a question mark after the type where null is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from dialnb.errors import BadParameter, DataError, DialnbError, UnknownName

PROFILES = ("smoke", "quick", "gpu", "paper")
FIELDS = {"type", "default", "help", "choices", "min", "max"}
SCALARS = {"int": int, "float": float, "str": str, "bool": bool}
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
    max: float | None = None

    @property
    def kind(self) -> str:
        """The type of the value, or of the items of a list."""
        return self.type.removesuffix("?").removeprefix("list[").removesuffix("]")

    @property
    def is_list(self) -> bool:
        return self.type.startswith("list[")

    @property
    def allowed(self) -> str:
        """Type and limits in words, as messages and help show them."""
        limits = [f"at least {self.min}"] if self.min is not None else []
        limits += [f"at most {self.max}"] if self.max is not None else []
        limits += [f"one of {', '.join(map(str, self.choices))}"] if self.choices else []
        return ", ".join([self.type, *limits])

    def check(self, value: Any) -> Any:
        """The value in its declared type; a list comes back as a tuple."""
        if value is None and self.type.endswith("?"):
            return None
        if self.is_list:
            if not isinstance(value, list | tuple):
                raise self._bad(value)
            return tuple(self._check_one(item) for item in value)
        return self._check_one(value)

    def parse(self, text: str) -> Any:
        """The value that was typed after `--set name=`."""
        if text in ("null", "none") and self.type.endswith("?"):
            return None
        if self.is_list:
            return self.check([self._parse_one(part.strip()) for part in text.split(",") if part.strip()])
        return self.check(self._parse_one(text))

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
        below, above = self.min is not None and not value >= self.min, self.max is not None and not value <= self.max
        if below or above or (self.choices and value not in self.choices):
            raise self._bad(value)
        return value

    def _bad(self, value: Any) -> BadParameter:
        return BadParameter(f"parameter {self.name!r} must be {self.allowed}, but is {value!r} ({self.help})")


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

    def parameter(self, name: str) -> Parameter:
        if name not in self.parameters:
            raise UnknownName(f"parameter of {self.slug}", name, self.parameters)
        return self.parameters[name]

    def parse(self, items: list[str]) -> dict[str, Any]:
        """`["steps=3", "seeds=1,2"]` as typed values."""
        found = {}
        for item in items:
            name, equals, text = item.partition("=")
            if not equals:
                raise BadParameter(f"--set takes name=value, but was given {item!r}")
            found[name.strip()] = self.parameter(name.strip()).parse(text.strip())
        return found

    def _refuse(self, conflict: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        pair = {name: value for side in conflict["between"] for name, value in side.items()}
        if all(values[name] == value for name, value in pair.items()):
            said = " and ".join(f"{name}={show(value)}" for name, value in pair.items())
            raise BadParameter(f"{self.slug}: {said} contradict each other: {conflict['because']}")


SEED = Parameter("seed", "int", 1, "seed of everything random in the run", min=0)


def project(root: Path | None = None) -> Path:
    """The folder with `papers/` and `notebooks/`: given, named by DIALNB_PROJECT, or the checkout."""
    from dialnb.papers import project_root

    named = root or os.environ.get("DIALNB_PROJECT")
    if not named:
        return project_root()
    folder = Path(named).expanduser().absolute()
    if not (folder / "papers").is_dir():
        raise DataError(f"expected a folder papers/ in {folder} (from DIALNB_PROJECT or --project), found none")
    return folder


def known_papers(root: Path) -> list[str]:
    """Slugs of the papers of a project: the five in their order, then others by name."""
    from dialnb.papers import SLUGS

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
        raise DataError(f"{where}: parameter {name!r} has the unknown fields {sorted(stray)}; known: {sorted(FIELDS)}")
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
        return ",".join(map(show, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
