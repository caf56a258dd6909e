"""Make .venv and install the lock: `python3 tools/setup.py`, which `make` calls before everything else.

It needs nothing but Python, and any Python 3 can read it, so that one that is too old is answered with a sentence.
Packages come by uv, which takes seconds; where uv is not available or fails, by pip, which takes minutes. What pip is
told in its files and variables (indexes, find-links, certificates) holds for both. A second call does nothing.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

SUPPORTED = ("3.11", "3.12", "3.13")
ENVIRONMENT = Path(".venv")
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check")
MARKER = ENVIRONMENT / ".installed"
HASHES = "tools/hashes.txt"
MISMATCH = "Hash mismatch"
"""What uv says of a file that has another sha256."""
LOG = Path("build/setup.log")
TAIL = 20
"""Lines of the log that are shown when a step fails."""

LISTS = ("extra-index-url", "find-links", "trusted-host", "constraint", "no-binary", "only-binary")
"""Options of pip that hold several values."""
ARGUMENTS = {
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
    "constraint": "--constraints",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
}
VARIABLES = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
    "keyring-provider": "UV_KEYRING_PROVIDER",
}
"""What uv calls an option of pip. Addresses may hold passwords, and a command line can be read by others."""
OTHER_NAMES = {"UV_INDEX_URL": ("UV_DEFAULT_INDEX",), "UV_EXTRA_INDEX_URL": ("UV_INDEX",)}


class SetupError(Exception):
    """A step failed; the words say which."""


class WrongFile(SetupError):
    """A package is not the file of the lock: nothing else is tried, since pip would install it without a look."""


def pip_options(listing: str) -> dict[str, str]:
    """Options of `pip install` from the lines of `pip config list`: those of variables win over those of files, and
    what a file says of the command over what it says of all commands."""
    ranks = {"global": 0, "install": 1, ":env:": 2}
    options: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in ranks and ranks[section] >= options.get(option, (0, ""))[0]:
            options[option] = (ranks[section], str(ast.literal_eval(value)))
    return {option: value for option, (_, value) in options.items()}


def may_exist(place: str) -> bool:
    """Tell whether a place exists on this machine; of an address elsewhere nothing is known, so it may."""
    if "://" not in place:
        return Path(place).expanduser().exists()
    address = urlsplit(place)
    return address.scheme != "file" or Path(url2pathname(address.path)).exists()


def for_uv(options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables that tell uv what pip is told.

    As by pip, the best version of all indexes is taken, and places that do not exist are passed over. What the
    environment says to uv itself stays.
    """
    arguments, variables = [], {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    if options.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        arguments.append("--no-index")
    for option, text in options.items():
        values = text.split() if option in LISTS else [text]
        if option in ("extra-index-url", "find-links"):
            values = [value for value in values if may_exist(value)]
        if option in ARGUMENTS:
            arguments += [part for value in values for part in (ARGUMENTS[option], value)]
        elif option in VARIABLES and values:
            variables[VARIABLES[option]] = " ".join(values)
    taken = {name for name in variables if {name, *OTHER_NAMES.get(name, ())} & set(environment)}
    return arguments, {name: value for name, value in variables.items() if name not in taken}


def key() -> str:
    """A hash of what the set-up depends on: the lock, the dependencies, this file, and where the clone stands."""
    contents = [Path(name).read_bytes() for name in ("constraints.txt", "pyproject.toml", "tools/setup.py", HASHES)]
    return hashlib.sha256(b"\n".join([*contents, os.fsencode(Path.cwd())])).hexdigest()


def step(words: str, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a command with its output in the log; one line says what is done and how long it took."""
    print(f"   {words}", end="", flush=True)
    begun = time.monotonic()
    with LOG.open("a", encoding="utf-8") as log:
        print("\n$", *command, file=log, flush=True)
        try:
            code = subprocess.call(command, stdout=log, stderr=log, env={**os.environ, **(variables or {})})
        except OSError as error:
            print(error, file=log)
            code = 1
    print(": failed" if code else f": {time.monotonic() - begun:.0f} s", flush=True)
    if code and MISMATCH in LOG.read_text(encoding="utf-8", errors="replace"):
        raise WrongFile(f"the check against {HASHES}")
    if code:
        raise SetupError(words)


def find_uv() -> str:
    """The uv on the PATH, if it runs; else the one that pip puts into .venv."""
    on_path = shutil.which("uv")
    if on_path and subprocess.run([on_path, "--version"], capture_output=True, check=False).returncode == 0:
        return on_path
    step("uv", [*PIP, "install", "-c", "constraints.txt", "uv"])
    return str(PYTHON.with_name("uv"))


def install() -> None:
    """Install the lock, then mteb, which is left out where one of its packages is not available."""
    try:
        listing = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
        arguments, variables = for_uv(pip_options(listing), os.environ)
        by = [find_uv(), "pip", "install", "--python", str(PYTHON), *arguments, "-c", "constraints.txt", "-c", HASHES]
        step("packages of the lock, by uv", [*by, "torch", "-e", ".[dev]"], variables)
    except WrongFile:
        raise
    except SetupError:
        print(f"   pip goes on, which takes a few minutes (what stopped uv: {LOG})", flush=True)
        by, variables = [*PIP, "install", "--progress-bar", "off", "-c", "constraints.txt"], {}
        step("torch, by pip", [*by, "torch"])
        step("packages of the lock, by pip", [*by, "-e", ".[dev]"])
    try:
        step("mteb", [*by, "-e", ".[mteb]"], variables)
    except WrongFile:
        raise
    except SetupError:
        print("   One package of mteb has no wheel for every platform. Tests that need mteb are skipped.", flush=True)


def main() -> int:
    """Set up in the folder of the project; the exit code is 1 if that failed."""
    os.chdir(Path(__file__).resolve().parent.parent)
    if MARKER.is_file() and MARKER.read_text(encoding="utf-8") == key():
        return 0
    version = "{}.{}".format(*sys.version_info)
    if version not in SUPPORTED:
        needed = "dialnb needs Python 3.11, 3.12 or 3.13"
        print(f"{needed}, but this is {version}. Name another: make test PYTHON=python3.12", file=sys.stderr)
        return 1
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("", encoding="utf-8")
    print(f"== Set-up, once: .venv with Python {version} (what uv and pip say: {LOG})", flush=True)
    try:
        step(".venv", [sys.executable, "-m", "venv", str(ENVIRONMENT)])
        install()
    except SetupError as error:
        tail = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
        print("\n".join(tail), f"The set-up stopped: {error} failed. All of it: {LOG}", sep="\n", file=sys.stderr)
        return 1
    MARKER.write_text(key(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
