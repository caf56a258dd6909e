"""How big the library is, room by room, in tokens (without comments and docstrings), since lines reward cramming.

    python -m tools.size [tokens=N] [per_line=N] [skips=N] [ROOM=N]

prints the table; the exit code is 1 if a limit is passed. `make lint` holds the limits, which only ever go down.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dialnb"
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of strings that stand first in a module, class or function."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def measure(path: Path) -> Counter[str]:
    """Tokens, lines of code and switched-off formatting of one file."""
    text = path.read_text(encoding="utf-8")
    docstrings = docstring_lines(ast.parse(text))
    tokens, lines = 0, set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if token.type not in SILENT and not is_docstring:
            tokens += 1
            lines |= set(range(token.start[0], token.end[0] + 1))
    return Counter(tokens=tokens, lines=len(lines), skips=text.count("fmt: skip") + text.count("fmt: off"))


def main(limits: dict[str, float]) -> int:
    """Print the table and what is over a limit."""
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        rooms.setdefault(parts[0] if len(parts) > 1 else "(top)", Counter()).update(measure(path))
    total = sum(rooms.values(), Counter())
    for room, size in [*sorted(rooms.items(), key=lambda item: -item[1]["tokens"]), ("all", total)]:
        print(f"{room:12}{size['tokens']:9,} tokens{size['tokens'] / size['lines']:7.1f} a line{size['skips']:5} skips")
    reached: dict[str, float] = {room: size["tokens"] for room, size in rooms.items()}
    reached |= {"per_line": total["tokens"] / total["lines"], "tokens": total["tokens"], "skips": total["skips"]}
    over = [
        f"{name} is {reached[name]:,.1f}, more than {limit:,g}"
        for name, limit in limits.items()
        if reached[name] > limit
    ]
    print("\n".join(over) or "within the limits")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main({name: float(limit) for name, limit in (argument.split("=") for argument in sys.argv[1:])}))
