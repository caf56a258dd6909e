"""The recorded results as a folder that the Hugging Face hub, and `datasets.load_dataset`, read as a dataset.

    python -m tools.dataset FOLDER

Every paper is a configuration with its tidy rows; the configuration `claims` has all claims with their verdicts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import yaml

from dialnb.ecosystem import citation
from dialnb.files import project_root, read_rows

TEXT = """
# Results of dialnb

Tidy rows of the recorded runs of dialnb, which reproduces five papers on dialogue representation: one row a score, with
task, dataset, metric, protocol, seed, value and n, and the settings that tell rows apart. `protocol` is `paper`, `code`
or `clean` (no test-set peeking), or `floor` for what a trivial method reaches. `claims` has what the papers claim, with
our verdict.

```python
from datasets import load_dataset

rows = load_dataset("path/to/this/folder", "dse", split="train").to_pandas()
```

| configuration | rows | profile |
|---|---:|---|
{table}

## Citation

```bibtex
{citations}
```
"""


def write_dataset(folder: Path, root: Path) -> Path:
    """Write the tables as CSV and a card with the hub's metadata; returns the card."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    tables: dict[str, pd.DataFrame] = {}
    profiles: dict[str, str] = {}
    claims = []
    for run in sorted(root.glob("papers/*/results/*/run.json")):
        slug = run.parts[-4]
        tables[slug] = read_rows(run.parent)
        profiles[slug] = run.parent.name
        for claim in json.loads((run.parent / "claims.json").read_text(encoding="utf-8")):
            simple = {name: value for name, value in claim.items() if not isinstance(value, dict | list)}
            claims.append({"slug": slug, "profile": run.parent.name} | simple)
    tables["claims"] = pd.DataFrame(claims)
    lines = []
    for name, table in tables.items():
        table.to_csv(folder / "data" / f"{name}.csv", index=False)
        lines.append(f"| {name} | {len(table):,} | {profiles.get(name, 'all')} |")
    about = {
        "license": "apache-2.0",
        "language": ["en"],
        "pretty_name": "Results of dialnb",
        "tags": ["dialogue", "sentence-embeddings", "reproducibility", "benchmark"],
        "configs": [{"config_name": name, "data_files": f"data/{name}.csv"} for name in tables],
    }
    cited = [citation(slug) for slug in tables if slug not in ("claims", "matrix")]
    text = TEXT.format(table="\n".join(lines), citations="\n\n".join(cited))
    card = folder / "README.md"
    card.write_text(f"---\n{yaml.safe_dump(about, sort_keys=False)}---\n{text}", encoding="utf-8")
    return card


if __name__ == "__main__":
    print(write_dataset(Path(sys.argv[1]), project_root()))
