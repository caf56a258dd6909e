"""What a run would do, without doing it: stages, models to train, steps, and which data and encoders are here."""

from __future__ import annotations

import ast
import json
import math
import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dialnb.errors import BadParameter, UnknownName
from dialnb.runs.profiles import Profiles, Settings


@dataclass(frozen=True)
class Step:
    """One line of the plan: a kind of stage, the models it makes, and how many steps each of them takes."""

    stage: str
    models: tuple[str, ...]
    steps: int


@dataclass(frozen=True)
class Need:
    """A dataset or an encoder that a profile asks for, and whether it is on this machine."""

    kind: str
    name: str
    present: bool
    state: str


def estimate(profiles: Profiles, settings: Settings) -> list[Step]:
    """The plan of `profiles.yaml` with its expressions worked out for these settings; without stages of no model."""
    found = []
    for row in profiles.plan:
        models = row.get("models", ())
        models = evaluate(models, settings) if isinstance(models, str) else models
        if "models" in row and not models:
            continue
        steps = evaluate(str(row.get("steps", 0)), settings)
        found.append(Step(row["stage"], tuple(map(str, models)), math.ceil(steps)))
    return found


def needs(profiles: Profiles, profile: str, settings: Settings) -> list[Need]:
    """Data and encoders of a profile, and the encoders that are set."""
    said = profiles.needs.get(profile) or {}
    encoders = dict.fromkeys([*said.get("encoders", ()), *profiles.encoders(settings)])
    return [_data(name) for name in said.get("data", ())] + [_encoder(name) for name in encoders]


def _data(name: str) -> Need:
    """A dataset is present when its records, or all the files they are read from, are in the cache or a mirror.

    Official files that nobody could check yet are needed where they are asked for, or where there is nothing else.
    """
    from dialnb.data.datasets import find_reader, records_path
    from dialnb.data.sources import get_source
    from dialnb.data.store import default_store

    store = default_store()
    dataset, _, variant = name.partition(":")
    reader = find_reader(dataset)
    path = records_path(reader, variant or None, store)
    if reader.dataset.startswith("bundled/"):
        return Need("data", name, True, "bundled")
    if path.is_file():
        return Need("data", name, True, "parsed, in the cache")
    sources = [get_source(source) for source in reader.sources]
    checked = "official" not in variant and any(file.verified for source in sources for file in source.files)
    wanted = [(source, file) for source in sources for file in source.files if file.verified or not checked]
    missing = [(source, file) for source, file in wanted if not store.has(source, file)]
    if not missing:
        return Need("data", name, True, "in the cache or a mirror")
    size = sum(file.size for _, file in missing) / 1e6
    amount = f"{size:,.1f} MB" if all(file.verified for _, file in missing) else "official files of unknown size"
    return Need("data", name, False, f"to be fetched: {amount} (dialnb data fetch {' '.join(reader.sources)})")


def check_encoders(profiles: Profiles, settings: Settings) -> None:
    """Refuse encoders set by hand that are neither on this machine nor on the hub, before anything runs."""
    for name in profiles.encoders(settings, by_hand=True):
        if not _encoder(name).present and (trouble := _not_on_the_hub(name)):
            raise BadParameter(f"there is no encoder '{name}': not bundled, no folder with a config.json, {trouble}")


def _not_on_the_hub(name: str) -> str:
    """Why an encoder cannot be fetched, or nothing."""
    from huggingface_hub import file_exists

    from dialnb.models.places import can_ask_hub

    if not can_ask_hub():
        return "not in the hub's cache, and the hub cannot be reached from here"
    return "" if file_exists(name, "config.json") else "and no model of the hub that can be read"


def _encoder(name: str) -> Need:
    from dialnb.models.places import find_encoder

    place = find_encoder(name)
    if place.kind == "hub":
        return Need("encoder", name, False, f"to be fetched from the hub (dialnb data fetch {name})")
    return Need("encoder", place.name, True, place.kind if place.folder else f"in the {place.kind}")


def describe(profiles: Profiles, profile: str, settings: Settings) -> str:
    """The whole plan as text: parameters, data, encoders, stages and steps."""
    lines = [f"{profiles.slug}, profile {profile}: the plan (nothing is executed)", "", "  parameters"]
    lines += [f"    {line}" for line in repr(settings).splitlines()]
    lines += ["", "  data and encoders"]
    wanted = needs(profiles, profile, settings)
    lines += [f"    {'present' if n.present else 'MISSING':<8} {n.kind:<8} {n.name}: {n.state}" for n in wanted]
    lines += [] if wanted else ["    none declared"]
    lines += ["", "  stages"]
    plan = estimate(profiles, settings)
    lines += [f"    {_line(step)}" for step in plan] if plan else ["    none declared"]
    total = sum(step.steps * max(1, len(step.models)) for step in plan)
    trained = sum(len(step.models) for step in plan if step.steps)
    lines += ["", f"  {trained} models to train, about {total:,} steps; stages that are in the cache are skipped"]
    return "\n".join(lines)


def _line(step: Step) -> str:
    each = [name if count == 1 else f"{name} ({count} times)" for name, count in Counter(step.models).items()]
    models = f": {', '.join(each)}" if each else ""
    return f"{step.stage}{models}" + (f" ({step.steps:,} steps each)" if step.steps else "")


OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
FUNCTIONS = {
    "len": len, "ceil": math.ceil, "min": min, "max": max,
    "given": lambda value, default: default if value is None else value,
}  # fmt: skip


def evaluate(expression: str, settings: Mapping[str, Any]) -> Any:
    """Arithmetic over parameters: numbers, names, + - * / //, len, ceil, min, max, and given (its second argument where
    the first is null); nothing else is understood.

    >>> evaluate("ceil(epochs * 100 / 32) * len(seeds)", {"epochs": 0.5, "seeds": (1, 2)})
    4
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                if name not in settings:
                    raise UnknownName("parameter in the plan", name, settings)
                return settings[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*map(value, args))
        raise BadParameter(f"the plan's expression {json.dumps(expression)} is not plain arithmetic over parameters")

    return value(ast.parse(expression, mode="eval"))
