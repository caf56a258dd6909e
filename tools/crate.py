"""A kept run as an RO-Crate 1.1 (https://w3id.org/ro/crate/1.1): what it holds, what made it, from which data.

The metadata file describes the run as a `CreateAction` of the notebook, with data and encoder as objects, the files of
the folder as results, and the code, packages and licences beside them; archives and search engines read it as it is.
"""

from __future__ import annotations

import json
import mimetypes
from pathlib import Path
from typing import Any

from dialnb.report.gather import seeds_of

NAME = "ro-crate-metadata.json"
LICENCE = "https://spdx.org/licenses/Apache-2.0"
WORDS = {
    "notebook.ipynb": "The executed notebook",
    "run.json": "Parameters, provenance, stages and timings of the run",
    "results.csv": "All results as tidy rows",
    "claims.json": "The paper's claims with verdicts and intervals",
}
mimetypes.add_type("application/x-ipynb+json", ".ipynb")
mimetypes.add_type("text/markdown", ".md")
mimetypes.add_type("application/x-tex", ".tex")


def write_crate(folder: Path) -> Path:
    """Describe the files that are in the folder now."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    path = folder / NAME
    path.write_text(json.dumps(crate(folder, run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def crate(folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The metadata as JSON-LD: a flat list of entities that point to each other by @id."""
    files = [_file(path, folder) for path in sorted(folder.rglob("*")) if _belongs(path)]
    inputs = [_dataset(entry) for entry in run.get("data", ())] + [_encoder(entry) for entry in run.get("encoders", ())]
    software = _software(run)
    seeds = seeds_of(run)
    title = f"{run['slug']} with profile {run['profile']}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    action = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"Execution of the notebook of {run['slug']}",
        "startTime": run["started"],
        "endTime": run["updated"],
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "instrument": _ids(software[:1]),
        "object": _ids(inputs) + [{"@id": f"#parameter-{name}"} for name in run["parameters"]],
        "result": _ids(files),
    }
    parameters = [
        {"@id": f"#parameter-{name}", "@type": "PropertyValue", "name": name, "value": _text(value)}
        for name, value in run["parameters"].items()
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Reproduction run: {title}",
        "description": f"Tables, figures, claims and provenance of one run of the paper {run['slug']} by dialnb.",
        "datePublished": run["updated"],
        "license": {"@id": LICENCE},
        "hasPart": _ids(files),
        "mentions": [{"@id": "#run"}],
    }
    descriptor = {
        "@id": NAME,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    licence = {"@id": LICENCE, "@type": "CreativeWork", "name": "Apache License 2.0"}
    graph = [descriptor, root, licence, action, *software, *inputs, *parameters, *files]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _belongs(path: Path) -> bool:
    return path.is_file() and path.name != NAME and not path.name.startswith(".")


def _file(path: Path, folder: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    entity = {"@id": name, "@type": "File", "name": name, "encodingFormat": kind}
    if name in WORDS:
        entity["description"] = WORDS[name]
    return entity | {"contentSize": str(path.stat().st_size)}


def _dataset(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "@id": f"#data-{entry['name']}-{entry['fingerprint']}",
        "@type": "Dataset",
        "name": entry["name"],
        "version": entry["variant"] or "default",
        "identifier": f"fingerprint:{entry['fingerprint']}",
        "license": entry["licence"],
    }


def _encoder(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "@id": f"#encoder-{entry['name']}",
        "@type": "SoftwareApplication",
        "name": entry["name"],
        "identifier": [f"sha256:{sha256}" for sha256 in entry["sha256"].values()],
        "license": entry["licence"],
    }


def _software(run: dict[str, Any]) -> list[dict[str, Any]]:
    code = run["code"]
    version = f"{code['commit']}{' with changes' if code.get('dirty') else ''}" if code["commit"] else "unknown"
    packages = {name: number for name, number in run["packages"].items() if number and name != "dialnb"}
    ours = {
        "@id": "#dialnb",
        "@type": "SoftwareSourceCode",
        "name": "dialnb",
        "version": version,
        "license": {"@id": LICENCE},
        "softwareRequirements": [{"@id": f"#package-{name}"} for name in packages],
    }
    return [ours] + [
        {"@id": f"#package-{name}", "@type": "SoftwareApplication", "name": name, "version": number}
        for name, number in packages.items()
    ]


def _ids(entities: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": entity["@id"]} for entity in entities]


def _text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) or value is None else value
