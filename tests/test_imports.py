"""An import imports: nothing else in the process is another afterwards."""

from __future__ import annotations

import ast
import logging
import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dialnb"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py" and "project" not in path.parts)


def state() -> dict[str, object]:
    """What modules of a process could change that belongs to all of them."""
    return {
        "environment": dict(os.environ),
        "modules in the place of others": sorted(name for name, module in sys.modules.items() if module is None),
        "filters of warnings": [str(entry) for entry in warnings.filters],
        "places of modules": [*sys.path, *map(str, sys.meta_path), *map(str, sys.path_hooks)],
        "streams and hooks": [sys.stdout, sys.stderr, sys.excepthook, sys.displayhook, warnings.showwarning],
        "handlers of signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "log": [logging.root.level, *logging.root.handlers, logging.root.manager.disable],
        "folder": Path.cwd(),
    }


def imports_of_others(path: Path) -> list[ast.stmt]:
    """What a module imports at its top from other packages, which may change what they like."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    body += [part for node in body if isinstance(node, ast.Try | ast.If) for part in node.body]
    named = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [node for node in named if not ast.unparse(node).split()[1].startswith("dialnb")]


def import_all() -> None:
    """Import what others made, then our modules; say what these changed."""
    for node in [node for path in SOURCES for node in imports_of_others(path)]:
        if not ast.unparse(node).startswith("from __future__"):
            with suppress(ModuleNotFoundError):
                exec(ast.unparse(node), {})  # noqa: S102 (imports of our own modules)
    old = state()
    for path in SOURCES:
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        try:
            import_module(name)
        except ModuleNotFoundError as missing:  # where there is no GPU
            assert missing.name == "triton"
    new = state()
    changed = {what: (_without(old[what], new[what]), _without(new[what], old[what])) for what in old}
    print({what: each for what, each in changed.items() if old[what] != new[what]} or "nothing changed")


def _without(one: object, other: object) -> object:
    """What one has besides the other, if they are collections."""
    if isinstance(one, dict):
        return dict(one.items() - other.items())
    return [each for each in one if each not in other] if isinstance(one, list) else one


def said_by(code: str) -> str:
    """The last line of a process that runs a piece of code, with nothing of ours imported before."""
    variables = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    variables["PYTHONPATH"] = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=900)
    return (done.stdout + done.stderr).splitlines()[-1]


def test_importing_every_module_changes_nothing_in_the_process():
    assert said_by("import test_imports; test_imports.import_all()") == "nothing changed"


def test_the_command_sets_its_environment_before_torch_is_there():
    code = "import os, sys, dialnb.cli; before = 'torch' in sys.modules; dialnb.cli.main(['--version']); "
    assert said_by(code + "print(before, os.environ['GOMP_SPINCOUNT'])") == "False 1000"
    code = "import os, dialnb.cli; os.environ['GOMP_SPINCOUNT'] = '7'; dialnb.cli.main(['--version']); "
    assert said_by(code + "print(os.environ['GOMP_SPINCOUNT'])") == "7", "what somebody has set stays"


def test_no_module_uses_tools_of_tests_or_sets_variables_but_the_command_and_the_workers():
    setting = ("os.environ[", "os.environ |", "os.environ.set", "os.environ.update", "os.putenv", "sys.modules[")
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert "mock" not in text, path
        lines = [line for line in text.splitlines() if any(part in line for part in setting) and " in os" not in line]
        assert not lines or path.name in ("cli.py", "scheduler.py"), (path, lines)
