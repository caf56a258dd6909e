"""Many runs: papers x profiles x seeds x encoders, as the Snakefile beside this file wants them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dialnb.errors import BadParameter, UnknownName
from dialnb.files import project_root
from dialnb.runs.engine import Request
from dialnb.runs.profiles import SEED, Profiles, flat, load_profiles
from dialnb.typed import show

AXES = ("papers", "profiles", "seeds", "encoders")
KEYS = (*AXES, "set", "out", "notebooks", "resources")


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep by the name of their folder; made and checked by `read_sweep`."""

    out: Path
    runs: Mapping[str, Request]
    notebooks: Path | None
    resources: Mapping[str, Mapping[str, int]]

    def command(self, name: str) -> str:
        """The shell command of one run."""
        request = self.runs[name]
        command = [sys.executable, "-m", "dialnb", "run", request.slug, "--profile", request.profile]
        command += ["--seed", str(request.seed), "--out", str(request.out.absolute()), "--project", str(project_root())]
        if self.notebooks:
            command += ["--notebooks", str(self.notebooks)]
        if request.encoder:
            command += ["--encoder", request.encoder]
        for parameter, value in request.overrides.items():
            command += ["--set", f"{parameter}={show(value)}"]
        return shlex.join(command)

    def wants(self, name: str) -> Mapping[str, int]:
        """The resources of one run: those of its profile."""
        return self.resources[self.runs[name].profile]


def read_sweep(config: Mapping[str, Any]) -> Sweep:
    """Every combination of the lists of `workflow/config.yaml`; a bad one is refused before anything runs."""
    for name in config:
        if name not in KEYS:
            raise UnknownName("setting of a sweep", name, KEYS)
    for name in AXES:
        if not isinstance(config.get(name), list) or not config[name]:
            raise BadParameter(f"a sweep needs '{name}' as a list that is not empty, but has {show(config.get(name))}")
    papers = {slug: load_profiles(slug) for slug in [*config["papers"], *(config.get("set") or {})]}
    sets = {slug: _as_on_the_command_line(profiles, config) for slug, profiles in papers.items()}
    out, runs = Path(config.get("out") or "runs/sweep"), {}
    for slug, profile, number, encoder in product(*(config[name] for name in AXES)):
        seed = SEED.parse(str(number))  # the engine's own --config makes texts of numbers
        papers[slug].resolve(profile, seed, encoder or "", sets[slug])
        if profile not in config["resources"]:
            raise UnknownName("profile among the resources of the sweep", profile, config["resources"])
        request = Request(slug, profile, seed, encoder or "", sets[slug], out)
        runs[request.folder.name] = request
    notebooks = Path(config["notebooks"]) if config.get("notebooks") else None
    return Sweep(out, runs, notebooks, config["resources"])


def _as_on_the_command_line(profiles: Profiles, config: Mapping[str, Any]) -> dict[str, Any]:
    """What the sweep sets by hand for one paper, typed as `dialnb run --set` types it: folders are named after it."""
    said = (config.get("set") or {}).get(profiles.slug) or {}
    return profiles.parse([f"{name}={show(v)}" for name, v in flat(said).items()])
