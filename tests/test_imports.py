"""An import imports: nothing else in the process is another afterwards."""

from __future__ import annotations

import logging
import os
import pkgutil
import signal
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import processes

import dialnb

MODULES = [
    module.name for module in pkgutil.walk_packages(dialnb.__path__, "dialnb.") if module.name != "dialnb.__main__"
]


def state() -> dict[str, object]:
    """What modules of a process could change that belongs to all of them."""
    return {
        "environment": dict(os.environ),
        "modules in the place of others": sorted(name for name, module in sys.modules.items() if module is None),
        "filters of warnings": [str(entry) for entry in warnings.filters],
        "places of modules": [*sys.path, *map(str, sys.meta_path), *map(str, sys.path_hooks)],
        "streams and hooks": [sys.stdout, sys.stderr, sys.excepthook, sys.displayhook, warnings.showwarning],
        "handlers of signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "log": [logging.root.level, *logging.root.handlers, logging.root.manager.disable],
        "folder": Path.cwd(),
    }


def import_all() -> None:
    """Import every module, then all of them again where what they import is there: that changes are theirs."""
    before = dict(os.environ)
    for name in MODULES:
        import_module(name)
    foreign = sys.modules.keys() - {"__main__"}
    for name in [name for name in foreign if name.split(".")[0] == "dialnb" or sys.modules[name] is None]:
        del sys.modules[name]
    os.environ.clear()
    os.environ.update(before)
    old = state()
    for name in MODULES:
        import_module(name)
    new = state()
    print({what: (old[what], new[what]) for what in old if old[what] != new[what]} or "nothing changed")


def test_importing_every_module_changes_nothing_in_the_process(tmp_path):
    process = processes.Process(tmp_path / "words", import_all)
    assert process.wait() == 0, process.said()
    assert process.said().splitlines()[-1] == "nothing changed"


def test_the_command_sets_its_environment_before_torch_and_leaves_what_is_set(monkeypatch):
    from dialnb import cli

    for given, found in (("", "1000"), ("7", "7")):
        monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
        if given:
            monkeypatch.setenv("GOMP_SPINCOUNT", given)
        assert cli.main(["--version"]) == 0 and os.environ["GOMP_SPINCOUNT"] == found
    monkeypatch.undo()
    code = "import dialnb.cli, sys; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900).stdout
    assert said.strip() == "False"


def test_no_module_of_the_library_uses_tools_of_tests():
    for path in Path(dialnb.__file__).parent.rglob("*.py"):
        assert "mock" not in path.read_text(encoding="utf-8"), path
