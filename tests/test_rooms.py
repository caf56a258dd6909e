"""The rooms of the library: imports go the way that CONTRIBUTING draws, and no module stands in a circle."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def drawn_order() -> dict[str, int]:
    """The floor of every room, as the list in CONTRIBUTING has it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("downwards;")[2].partition("`tools`")[0]
    lines = [line.strip().partition("  ")[0] for line in text.splitlines() if line.startswith("    ")]
    return {room.strip(): floor for floor, line in enumerate(lines) for room in line.split(",")}


def imports(path: Path) -> set[str]:
    """The modules of the project that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} if node.module != "dialnb" else {f"dialnb.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return {name for name in found if name.partition(".")[0] in ("dialnb", "tools", "benchmarks")}


def room_of(module: str) -> str:
    return module.split(".")[1]


def test_rooms_import_only_what_stands_above_them_in_contributing():
    floors, wrong = drawn_order(), []
    assert len(floors) > 15
    for path in sorted((ROOT / "dialnb").rglob("*.py")):
        parts = path.relative_to(ROOT / "dialnb").with_suffix("").parts
        if parts[0].startswith("__"):
            continue
        assert parts[0] in floors, f"{path}: CONTRIBUTING does not name the room {parts[0]}"
        for module in imports(path):
            if module.partition(".")[0] != "dialnb":
                wrong.append(f"{path}: {module} is not part of the package")
            elif (
                room_of(module) not in ("__version__", "lazily", parts[0])
                and floors[room_of(module)] >= floors[parts[0]]
            ):
                wrong.append(f"{path}: {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["tools", "benchmarks"])
def test_what_makers_tools_import_from_the_library_is_there(folder):
    lost = []
    for path in sorted((ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dialnb"):
                module = find_spec(node.module) and importlib.import_module(node.module)
                for name in node.names:
                    if not hasattr(module, name.name) and not find_spec(f"{node.module}.{name.name}"):
                        lost.append(f"{path.name}: {node.module}.{name.name}")
    assert lost == []
