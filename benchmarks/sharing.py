"""How fast do trainings run beside each other on one GPU? `python -m benchmarks.sharing --workers 12 -o FOLDER`.

Three trainings of each of four recipes from a real encoder, on the bundled dialogues, each in a process of its own.
Run it once as it is and once after `nvidia-cuda-mps-control -d`; `--workers 1` makes them one after the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dialnb.examples.readings import Dialogues
from dialnb.runs import start
from dialnb.studies import dse

STEPS = {"DSE": 150, "SimCSE-unsup": 500, "TOD-BERT": 250, "WMDC": 300}


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Print what each training reached: steps, seconds, steps and tokens per second."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the run; DIALNB_CACHE should be fresh")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--copies", type=int, default=3, help="trainings of each recipe")
    parser.add_argument("--share", type=float, default=1, help="of the steps")
    parser.add_argument("--profile", default="gpu")
    options = parser.parse_args(arguments)
    overrides = {"corpus": "bundled", "data": "bundled", "raw_start": "as it comes", "workers": options.workers}
    run = start("dse", options.profile, overrides=overrides, out=options.out)
    dialogues = Dialogues(run.corpus(), run.settings.dialogues)
    models = {}
    for copy in range(1, options.copies + 1):
        for recipe, steps in STEPS.items():
            model = dse.model(recipe, dialogues, as_in="wmdc" if recipe == "WMDC" else "")
            changes = {"max_steps": max(1, int(steps * options.share)), "epochs": 50}
            models[f"{recipe}, {copy}"] = replace(
                model, watch=None, report=0, seeds=(copy,), settings=dict(model.settings) | changes
            )
    run._profiles = replace(run._profiles, parameters={})  # whatever models the profile takes
    began, rows = time.perf_counter(), []
    trained = run.train(models)
    wall = time.perf_counter() - began
    for (name, _), result in trained.results.items():
        facts = result.training
        row = {"training": name, "steps": facts.steps, "seconds": round(facts.seconds, 1)}
        row |= {"steps/s": round(facts.steps / facts.seconds, 1), "tokens/s": round(facts.tokens_per_second)}
        rows.append(row)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    print(f"{table['tokens/s'].sum():,} tokens/s in all, {wall:.1f} s with start-up")
    run.finish()
    return table


if __name__ == "__main__":
    main()
