"""Values of a declared type: text becomes one, and what is none is refused in a sentence. The types are pydantic's.

>>> steps = Parameter("steps", Annotated[int, Field(ge=1, le=9)], 8, "training steps")
>>> steps.parse("3"), steps.takes
(3, 'a whole number, at least 1, at most 9')
"""

import difflib
from contextlib import suppress
from typing import Annotated, Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from dialnb.errors import BadParameter

LARGEST = 2**31 - 1
"""The largest number that every library takes as a seed or a count."""

KINDS = {
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "string": ("text", "names"),
    "boolean": ("true or false", "true or false"),
    "encoder": ("a bundled encoder, a folder or a hub id", "bundled encoders, folders or hub ids"),
}
"""What a type of JSON schema is in words, as one value and as the items of a list."""

LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}

Count = Annotated[int, Field(ge=1, le=LARGEST)]
Above0 = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1)]


class Parameter:
    """A name, the type of its values, the default and the meaning."""

    def __init__(self, name: str, kind: Any, default: Any = None, help: str = "") -> None:
        self.name, self.kind, self.default, self.help = name, kind, default, help
        self._adapter = TypeAdapter(kind)
        schema = self._adapter.json_schema()
        self.is_list = schema.get("type") == "array"
        inner = schema["items"] if self.is_list else schema
        self._parts = inner.get("anyOf", [inner])
        self.choices = tuple(name for part in self._parts for name in _named(part))
        self.types = {part["type"] for part in self._parts}

    @property
    def takes(self) -> str:
        """Kind and limits in words, as messages and help show them."""
        words = []
        for part in self._parts:
            if part["type"] == "null":
                words.append("none")
            elif named := _named(part):
                each = "names, each of them " if self.is_list and not words else ""
                words.append(f"{each}one of {', '.join(map(show, named))}")
            elif "const" not in part:
                limits = [f"{word} {part[key]}" for key, word in LIMITS.items() if key in part]
                words.append(", ".join([KINDS[part["type"]][self.is_list], *limits]))
        return ", or ".join(words) + (" (a list: A,B or '[A, B]')" if self.is_list else "")

    def check(self, value: Any) -> Any:
        """The value in its declared type; a list, or a text that is written as one, comes back as a tuple."""
        if self.is_list and isinstance(value, str):
            return self.parse(value)
        return self._validated(tuple(value) if isinstance(value, list) else value, strict=True)

    def parse(self, text: str) -> Any:
        """The value that was typed after `--set name=`: a list as `A,B` or `[A, B]`, an item with a comma in quotes."""
        value: Any = None if text in ("null", "none") else text
        if self.is_list:
            with suppress(yaml.YAMLError):
                value = tuple(yaml.load(text if text.startswith("[") else f"[{text}]", yaml.BaseLoader))
        return self._validated(value, strict=False)

    def _validated(self, value: Any, strict: bool) -> Any:
        about = f" ({self.help})" if self.help else ""
        try:
            checked = self._adapter.validate_python(value, strict=strict)
        except ValidationError as error:
            wrong = error.errors()[0]["input"]
            near = difflib.get_close_matches(show(wrong), map(show, self.choices), n=1, cutoff=0.6)
            found = f"{'has' if self.is_list else 'is'} {wrong!r}" + (f"; did you mean {near[0]}?" if near else "")
            raise BadParameter(f"parameter '{self.name}' must be {self.takes}, but {found}{about}") from None
        if self.is_list and len(set(checked)) < len(checked):
            raise BadParameter(f"parameter '{self.name}' has a value more than once: {show(checked)}{about}")
        return checked


def _named(part: dict[str, Any]) -> list[str]:
    """The names that a part of a schema offers; an empty one, which leaves something out, is none."""
    return [name for name in part.get("enum", [part.get("const")]) if name]


def show(value: Any) -> str:
    """A value as it is typed after `--set`."""
    if isinstance(value, list | tuple):
        return ",".join(f'"{item}"' if "," in str(item) else show(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
