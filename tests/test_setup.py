"""`make setup`: one environment, one lock, by uv or by pip, with what pip was told, in a few lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tools import setup

ROOT = Path(__file__).resolve().parent.parent
STAND_IN = f"""#!/bin/sh
echo "${{0##*/}} $*" >> calls
case "$*" in
  *"setup.py") exec {sys.executable} -I -S -c "
import runpy, sys
sys.executable, sys.version_info = '$0', (${{VERSION:-3, 12}})
runpy.run_path('tools/setup.py', run_name='__main__')";;
  "-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
  *"config list") cat pip-options;;
  *"${{FAILS:-nothing}}"*) echo "no such package: $*"; exit 1;;
  *"constraints.txt uv") cp "$0" .venv/bin/uv;;
  "pip install"*) env | grep -E '^(UV|SSL)_' > told-to-uv;;
esac
"""
"""Stands for Python, pip and uv: notes how it is called; with FAILS, calls that hold these words fail."""


class Checkout:
    """A folder with what the set-up reads, and a PATH with nothing on it but what the stand-ins need."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "path"
        for name in ("Makefile", "constraints.txt", "pyproject.toml", "tools/setup.py", "tools/hashes.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
        self.path.mkdir()
        for name in ("make", "mkdir", "cp", "cat", "env", "grep"):
            (self.path / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not on the PATH"))
        self.stand_in("python3")
        (folder / "pip-options").touch()

    def stand_in(self, name: str) -> None:
        (self.path / name).write_text(STAND_IN)
        (self.path / name).chmod(0o755)

    def make(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        """`make setup`; the calls that it led to are in ``calls``."""
        (self.folder / "calls").write_text("")
        return subprocess.run(
            [self.path / "make", "setup", *arguments],
            cwd=self.folder,
            env={"PATH": str(self.path), **variables},
            capture_output=True,
            text=True,
            timeout=900,
        )

    def installs(self) -> list[str]:
        """The calls that install something, without the options that all have."""
        calls = (self.folder / "calls").read_text().splitlines()
        common = (" -m", " --disable-pip-version-check", " --progress-bar off", " --python .venv/bin/python")
        for option in common:
            calls = [call.replace(option, "") for call in calls]
        return [call for call in calls if " pip install " in call]


BY_UV = [f"uv pip install -c constraints.txt -c tools/hashes.txt {what}" for what in ("torch -e .[dev]", "-e .[mteb]")]
BY_PIP = [f"python pip install -c constraints.txt {what}" for what in ("torch", "-e .[dev]", "-e .[mteb]")]


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


def test_uv_on_the_path_installs_the_lock_and_a_second_call_does_nothing(checkout):
    checkout.stand_in("uv")
    done = checkout.make()
    assert (done.returncode, done.stderr, checkout.installs()) == (0, "", BY_UV)
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()] == [
        *("== Set-up, once", ".venv", "packages of the lock, by uv", "mteb"),
    ]
    assert "build/setup.log" in done.stdout and "$ " in (checkout.folder / "build" / "setup.log").read_text()
    again = checkout.make()
    assert (again.returncode, again.stdout, checkout.installs()) == (0, "", [])


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml", "tools/setup.py", "tools/hashes.txt"])
def test_a_change_of_what_it_depends_on_sets_up_again(checkout, name):
    checkout.stand_in("uv")
    checkout.make()
    with (checkout.folder / name).open("a") as file:
        file.write("# changed\n")
    assert "Set-up" in checkout.make().stdout and checkout.installs() == BY_UV


def test_without_uv_pip_puts_it_into_the_environment(checkout):
    assert checkout.make().returncode == 0
    assert checkout.installs() == ["python pip install -c constraints.txt uv", *BY_UV]


@pytest.mark.parametrize("broken", ["uv --version", "uv pip install"], ids=["a shim without uv", "uv fails"])
def test_where_uv_does_not_work_pip_installs_torch_first_and_then_the_rest(checkout, broken):
    checkout.stand_in("uv")
    (checkout.path / "uv").write_text(f'#!/bin/sh\ncase "uv $*" in "{broken}"*) echo broken; exit 3;; esac\n')
    done = checkout.make(FAILS="constraints.txt uv")
    assert done.returncode == 0 and "pip goes on" in done.stdout
    assert checkout.installs()[-3:] == BY_PIP


@pytest.mark.parametrize("calls", ["pip*", "*mteb*"], ids=["of the lock", "of an extra"])
def test_a_file_with_another_sha256_stops_the_set_up(checkout, calls):
    checkout.stand_in("uv")
    stand_in = f'#!/bin/sh\ncase "$*" in {calls}) echo "Hash mismatch for six"; exit 1;; esac\n'
    (checkout.path / "uv").write_text(stand_in)
    failed = checkout.make()
    assert failed.returncode != 0 and "the check against tools/hashes.txt failed" in failed.stderr
    assert checkout.installs() == [], "pip does not go on"


def test_every_package_of_the_lock_but_torch_has_its_hashes():
    lock = [line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    pinned = {f"{canonicalize_name(name)}=={version}" for name, version in lock if name != "torch"}
    lines = (ROOT / "tools" / "hashes.txt").read_text().splitlines()
    assert {line.split(" ")[0] for line in lines if line[0] not in "# "} == pinned
    assert all(line.startswith("    --hash=sha256:") for line in lines if line[0] == " ")


def test_a_set_up_that_fails_shows_the_end_of_its_log_and_is_tried_again(checkout):
    failed = checkout.make(FAILS="install")
    assert failed.returncode != 0 and "torch, by pip: failed" in failed.stdout
    assert "no such package" in failed.stderr and "torch, by pip failed. All of it: build/setup.log" in failed.stderr
    assert len(failed.stderr.splitlines()) < 25
    assert checkout.make().returncode == 0 and checkout.installs()


def test_an_extra_that_cannot_be_installed_stops_nothing(checkout):
    checkout.stand_in("uv")
    done = checkout.make(FAILS="[mteb]")
    assert done.returncode == 0 and "mteb: failed\n" in done.stdout and "are skipped" in done.stdout
    assert checkout.make().stdout == ""


def test_another_python_is_refused_with_a_sentence_that_says_what_to_do(checkout):
    refused = checkout.make(VERSION="3, 9")
    assert refused.returncode != 0 and not (checkout.folder / ".venv").exists()
    assert "needs Python 3.11, 3.12 or 3.13, but this is 3.9. Name another: make test PYTHON=" in refused.stderr
    missing = checkout.make("PYTHON=python3.99")
    assert missing.returncode != 0 and "there is no 'python3.99'" in missing.stderr


# --- what pip was told ------------------------------------------------------------------------------------------------


def test_uv_is_told_what_pip_was_told(checkout, tmp_path):
    (tmp_path / "my wheels").mkdir()
    (tmp_path / "pip-options").write_text(
        f"""global.index-url='https://me:word@example.org/simple'
global.extra-index-url='\\nhttps://example.org/more\\nfile://{tmp_path}/nowhere\\nfile://{tmp_path}/my%20wheels'
global.find-links='{tmp_path} /no/such/folder'
global.cert='/of/all.pem'
install.cert='/of/install.pem'
:env:.default-timeout='180'
"""
    )
    checkout.stand_in("uv")
    assert checkout.make(UV_HTTP_TIMEOUT="7").returncode == 0
    assert checkout.installs() == [call.replace("-c ", f"--find-links {tmp_path} -c ", 1) for call in BY_UV]
    assert sorted((tmp_path / "told-to-uv").read_text().splitlines()) == [
        "SSL_CERT_FILE=/of/install.pem",
        f"UV_EXTRA_INDEX_URL=https://example.org/more file://{tmp_path}/my%20wheels",
        "UV_HTTP_TIMEOUT=7",
        "UV_INDEX_STRATEGY=unsafe-best-match",
        "UV_INDEX_URL=https://me:word@example.org/simple",
    ]
    assert "me:word" not in (tmp_path / "build" / "setup.log").read_text()


def test_what_pip_reads_in_its_files_and_variables_is_what_is_read_here(tmp_path):
    (tmp_path / "pip.conf").write_text(
        "[global]\ntimeout = 5\nindex-url = https://a.org/'s\n[install]\nfind-links =\n  /a\n  /b\n[list]\nproxy = x\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    told = kept | {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_TIMEOUT": "9", "PIP_TRUSTED_HOST": "a.org b.org"}
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], env=told, capture_output=True, text=True)
    options = setup.pip_options(listing.stdout)
    assert (options["timeout"], options["index-url"], options["find-links"].split()) == (
        "9",
        "https://a.org/'s",
        ["/a", "/b"],
    )
    assert options["trusted-host"] == "a.org b.org" and "proxy" not in options


@pytest.mark.parametrize(
    ("options", "arguments", "variables"),
    [
        ({}, [], {}),
        ({"no-index": "1"}, ["--no-index"], {}),
        ({"no-index": "false"}, [], {}),
        (
            {"trusted-host": "a.org b.org:80"},
            [*("--allow-insecure-host", "a.org", "--allow-insecure-host", "b.org:80")],
            {},
        ),
        ({"only-binary": ":all:", "quiet": "1"}, ["--only-binary", ":all:"], {}),
        ({"extra-index-url": "file:///no/such/place"}, [], {}),
        ({"client-cert": "my cert.pem"}, [], {"SSL_CLIENT_CERT": "my cert.pem"}),
        ({"index-url": "https://a.org"}, [], {}),
    ],
)
def test_options_of_pip_in_the_words_of_uv(options, arguments, variables):
    strategy = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    assert setup.for_uv(options, {"UV_DEFAULT_INDEX": "https://mine.org"}) == (arguments, strategy | variables)
