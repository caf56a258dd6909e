"""Everything a machine without network needs to run papers, in one archive: project, packages, data, encoders.

    python -m tools.pack PAPER... -o FILE

The archive unpacks into one folder and runs from there with PYTHONPATH alone: nothing is installed, no rights are
needed. Packages that the machine has already stay out; the others lie unpacked in `site-packages/`.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from huggingface_hub import constants
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dialnb
from dialnb.commands.runs import chosen_papers
from dialnb.data import default_store, find_reader, load, records_path
from dialnb.errors import BadParameter, DataError, DialnbError
from dialnb.files import PACKAGED, make_folder, project_root, write_json
from dialnb.models.places import download_encoder, encoder_name, encoder_source, find_encoder
from dialnb.runs.profiles import load_profiles
from dialnb.runs.provenance import commit

Versions = dict[str, str]
"""Packages with their versions, "" where only the name is known."""

FOLDER = "dialnb-pack"
FORMATS = {".tar": "tar", ".tar.gz": "gztar", ".tar.xz": "xztar"}
HEADLESS_WITHOUT = ("jupyterlab", "debugpy", "aiohttp", "jedi", "parso")
"""Declared, but not needed by a headless run."""

USUAL = ["torch", "transformers", "sentence-transformers", "accelerate", "scikit-learn", "pandas", "matplotlib"]
"""What a GPU machine usually has; with everything that these need."""

NEVER = ("torch",)
"""Packages that are never packed: they must fit the machine's driver."""

PROJECT_FILES = ("papers", "notebooks", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "CITATION.cff")

SCRIPT = """#!/bin/sh
# Runs what was packed, from this folder, without network and without installing anything.
# Further options go to `dialnb run`; another Python: PYTHON=python3.12 sh run.sh
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export PYTHONPATH="$here/project:$here/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
export DIALNB_PROJECT="$here/project" DIALNB_CACHE="${{DIALNB_CACHE:-$here/cache}}" HF_HUB_CACHE="$here/hub"
export DIALNB_OFFLINE=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
# Several processes share a GPU far better through NVIDIA's multi-process service, where it is installed.
nvidia-cuda-mps-control -d >/dev/null 2>&1 || true
exec "${{PYTHON:-python3}}" -m dialnb run {arguments} --out "$here/runs" "$@"
"""


@dataclass(frozen=True)
class Target:
    """The machine that the archive is for; `have` are its packages."""

    platform: str
    python: str
    have: Versions

    def markers(self) -> dict[str, str]:
        """What requirements with conditions see; a machine of another kind than this one is one with Linux."""
        found = {"extra": "", "python_version": self.python, "python_full_version": f"{self.python}.0"}
        if self.platform != host_platform():
            machine = "aarch64" if self.platform.endswith("aarch64") else "x86_64"
            found |= {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine}
        return found


def host_platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def pack(
    slugs: Sequence[str],
    profile: str,
    out: Path,
    root: Path,
    target: Target,
    without: Iterable[str] = (),
    encoder: str = "",
) -> tuple[dict[str, int], Versions, list[str]]:
    """Gather everything into a folder beside `out`, and archive it; the suffix of `out` decides on compression. Returns
    the bytes of its parts, its packages with versions, and the licences of its data."""
    kinds = [kind for suffix, kind in FORMATS.items() if out.name.lower().endswith(suffix)]
    if not kinds:
        raise BadParameter(f"the archive must be named *{', *'.join(FORMATS)}, but is {out.name!r}")
    data, encoders = [], []
    for slug in slugs:
        profiles = load_profiles(slug, root)
        needed = profiles.needed(profile, profiles.resolve(profile, encoder=encoder))
        data += needed[0]
        encoders += needed[1]
    with tempfile.TemporaryDirectory(dir=make_folder(out.parent), prefix=".pack-") as draft:
        folder = Path(draft) / FOLDER
        pack_project(root, folder / "project")
        packages = missing_packages(target, without)
        pack_packages(packages, target, folder / "site-packages")
        data = [name for name in dict.fromkeys(data) if name not in without]
        licences = pack_data(data, folder / "cache") + pack_encoders(dict.fromkeys(encoders), folder)
        arguments = f"{' '.join(slugs)} --profile {profile}"
        if encoder:
            name = encoder_name(encoder)
            inside = '"$here"/encoders/' if (folder / "encoders" / name).is_dir() else ""
            arguments += f" --encoder {inside}{shlex.quote(name)}"
        (folder / "run.sh").write_text(SCRIPT.format(arguments=arguments), "utf-8")
        sizes = {}
        for part in sorted(folder.glob("*/")):
            sizes[part.name] = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        Path(shutil.make_archive(f"{draft}/pack", kinds[0], draft, FOLDER)).replace(out)
    return sizes, packages, licences


def pack_project(root: Path, folder: Path) -> None:
    """The package, the papers and the notebooks as they stand, and which commit that is."""
    package = Path(dialnb.__file__).resolve().parent
    leave = shutil.ignore_patterns("__pycache__", "*.pyc", ".ipynb_checkpoints", "results", PACKAGED.name)
    shutil.copytree(package, folder / "dialnb", ignore=leave)
    for path in [root / name for name in PROJECT_FILES] + sorted(root.glob("*.py")):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=leave)
        elif path.is_file():
            shutil.copy2(path, folder / path.name)
    write_json(folder / "PACKED.json", {"code": commit()})


def usual_packages() -> Versions:
    """The usual packages of a GPU machine and all that they need, as far as they are known here."""
    found: Versions = {}
    todo = list(USUAL)
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found:
            found[name] = ""
            todo += [need.name for need in requirements(name)]
    return found


def read_have(path: Path) -> Versions:
    """The packages in the output of `pip freeze` on the target machine, with versions where it tells them."""
    found: Versions = {}
    for line in path.read_text("utf-8").splitlines():
        if match := re.match(r"([A-Za-z0-9][\w.-]*)\s*(?:==\s*([\w.!]+)|@)?", line):
            found[canonicalize_name(match[1])] = match[2] or ""
    return found


def missing_packages(target: Target, without: Iterable[str] = ()) -> Versions:
    """Name and version of every package that dialnb needs headless and the target lacks, at the versions used here."""
    leave = {canonicalize_name(name) for name in (*HEADLESS_WITHOUT, *without)}
    found: Versions = {}
    todo = requirements("dialnb", target.markers())
    if not todo:
        raise DataError("dialnb is not installed here, so what it needs is not known; pip install -e .")
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        has = target.have.get(name)
        if name in leave or name in found or has == "" or (has and need.specifier.contains(has, prereleases=True)):
            continue
        if name in NEVER:
            raise DataError(f"the target needs {need}, but has {has or 'none'}; install it there, it cannot be packed")
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            words = f"{need} is needed with Python {target.python}, but is not installed here"
            raise DataError(f"{words}; install it, or leave it out with --without {name}") from None
        todo += requirements(name, target.markers())
    return dict(sorted(found.items()))


def requirements(name: str, markers: dict[str, str] | None = None) -> list[Requirement]:
    """What a package needs where the markers hold (by default: here); nothing, if it is not installed."""
    try:
        needs = map(Requirement, metadata.requires(name) or ())
    except metadata.PackageNotFoundError:
        return []
    return [need for need in needs if need.marker is None or need.marker.evaluate(markers or {"extra": ""})]


def pack_packages(packages: Versions, target: Target, site: Path) -> None:
    """Unpack the packages into `site`: from this environment if the target is like this machine, else from an index."""
    site.mkdir(parents=True)
    if (target.platform, target.python) == (host_platform(), "{}.{}".format(*sys.version_info)):
        for name in packages:
            for file in metadata.files(name) or ():
                if ".." not in file.parts and file.suffix != ".pyc" and Path(file.locate()).is_file():
                    (site / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file.locate(), site / file)
    elif packages:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-compile", "--only-binary=:all:", "--implementation=cp", f"--python-version={target.python}"]
        command += [f"--platform={tag}" for tag in platform_tags(target.platform)]
        command += [f"--target={site}", *(f"{name}=={version}" for name, version in packages.items())]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise DataError(f"pip could not download the packages for {target.platform}: {done.stderr.strip()[-2000:]}")


def platform_tags(tag: str) -> list[str]:
    """A manylinux tag stands for the older ones too, as it does for pip on the machine itself.

    >>> platform_tags("manylinux_2_17_x86_64")[:2]
    ['manylinux_2_17_x86_64', 'manylinux_2_16_x86_64']
    """
    match = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", tag)
    if not match:
        return [tag]
    newest, machine = int(match[1]), match[2]
    legacy = [f"manylinux2014_{machine}"] if newest >= 17 else []
    return [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)] + legacy + [f"linux_{machine}"]


def pack_data(names: Iterable[str], cache: Path) -> list[str]:
    """The parsed records of the datasets (read now if need be); bundled ones travel with the project. The licences."""
    store = default_store()
    licences: dict[str, None] = {}
    (cache / "records").mkdir(parents=True)
    for name in names:
        dataset, _, variant = name.partition(":")
        reader = find_reader(dataset)
        licences[f"{dataset}: {reader.terms()}"] = None
        if not reader.dataset.startswith("bundled/"):
            load(dataset, variant, store=store)
            shutil.copy2(records_path(reader, variant, store), cache / "records")
    if (store.cache / "recorded.json").is_file():
        shutil.copy2(store.cache / "recorded.json", cache)
    return list(licences)


def pack_encoders(names: Iterable[str], folder: Path) -> list[str]:
    """Encoders where the packed run looks for them: folders under their name, what has known bytes or came from a
    mirror in dialnb's cache, others in the hub's; bundled ones are there already. Returns their licences."""
    licences = []
    for name in names:
        place, source = find_encoder(name), download_encoder(name)
        if place.kind == "folder":
            root = source.resolve()
            for path in filter(Path.is_symlink, root.rglob("*")):
                if not (path.is_file() and path.resolve().is_relative_to(root)):
                    raise DataError(f"{path} is a link that leads out of its folder: put the file itself there")
            shutil.copytree(root, folder / "encoders" / place.name)
        elif place.kind != "bundled":
            licences.append(f"{place.name}: {encoder_source(place.name).licence}")
            goal = folder / "cache" / "files" / place.name
            if is_in_hub := source.is_relative_to(constants.HF_HUB_CACHE):
                source = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
                goal = folder / "hub" / source.name
            shutil.copytree(source, goal, symlinks=is_in_hub)
    return licences


def main(arguments: Sequence[str] | None = None) -> None:
    """Pack papers, and say what is in the archive and how it is run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="+", metavar="PAPER", help="papers by name, or 'all'")
    parser.add_argument("--profile", default="gpu", help="its profile (default: gpu)")
    parser.add_argument("--encoder", default="", help="an encoder in place of the profile's own")
    parser.add_argument("--platform", help="wheel tag of the target, e.g. manylinux_2_28_x86_64 (default: as here)")
    parser.add_argument("--python", default="{}.{}".format(*sys.version_info), help="its Python (default: %(default)s)")
    parser.add_argument("--have", type=Path, help="pip freeze of the target (default: torch and its usual company)")
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="a package or dataset to leave out"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="*.tar, *.tar.gz or *.tar.xz")
    parser.add_argument("--project", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")
    options = parser.parse_args(arguments)
    try:
        root = project_root(options.project)
        slugs = chosen_papers(options.papers, root)
        installed = read_have(options.have) if options.have else usual_packages()
        target = Target(options.platform or host_platform(), options.python, installed)
        sizes, packages, licences = pack(
            slugs, options.profile, options.output, root, target, options.without, options.encoder
        )
    except (DialnbError, OSError) as error:
        parser.exit(1, f"pack: {error}\n")
    for name, size in sizes.items():
        print(f"  {name:<8} {size / 1e6:9,.1f} MB")
    print(f"  packages: {', '.join(f'{name} {version}' for name, version in packages.items()) or 'none'}")
    for licence in licences:
        print(f"  data under its own licence: {licence}")
    size = options.output.stat().st_size
    print(f"{options.output}: {size / 1e6:,.1f} MB for {target.platform}, Python {options.python}")
    print(f"Run it there: tar xf {options.output.name} && sh {FOLDER}/run.sh")


if __name__ == "__main__":
    main()
