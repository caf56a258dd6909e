"""Models for the Hugging Face hub: results in the card's metadata, and the upload."""

import os
from pathlib import Path

import pandas as pd
from huggingface_hub import EvalResult, HfApi, ModelCard

from dialnb.data.store import default_store
from dialnb.errors import DataError, Offline
from dialnb.models.places import CARD

SCORE = ("task", "dataset", "metric", "protocol")
LEFT_OUT = "task dataset metric protocol model value n seed train_seed encoder substitute table column train_size epoch"
"""Columns of tidy rows that are no setting of a score."""

TABLES = {"": "X-datasets", "own budget": "X-datasets-own"}
"""Where a matrix has the scores by dataset of methods from the first start, and of those with a budget of their own."""


def eval_results(rows: pd.DataFrame, model: str) -> list[EvalResult]:
    """Every score of a model, the mean of its tidy rows over seeds; floors are left out."""
    scored = rows[(rows["model"] == model) & rows["dataset"].notna() & (rows["protocol"] != "floor")]
    settings = [name for name in scored if name not in LEFT_OUT.split() and scored[name].notna().any()]
    results = []
    for keys, value in scored.groupby([*SCORE, *settings], sort=False, dropna=False)["value"].mean().items():
        task, dataset, metric, protocol, *chosen = keys
        words = [f"{name} {setting}" for name, setting in zip(settings, chosen) if pd.notna(setting)]
        results.append(
            EvalResult(
                task_type=task.lower(),  # scores of one type and dataset are one entry
                task_name=task,
                dataset_type=dataset.lower(),
                dataset_name=dataset,
                metric_type=metric.lower(),
                metric_name=", ".join([metric, f"protocol {protocol}", *words]),
                metric_value=round(float(value), 4),
            )
        )
    return results


def own_rows(rows: pd.DataFrame, model: str) -> pd.DataFrame:
    """The rows of one training, named as its stage is, "DSE, seed 2"; without a seed, of the first.

    In a matrix they are those by dataset, and plain names are of the first start, others of the second ("DSE, as it
    comes") or of the budget of the method's own notebook ("DSE, own budget").
    """
    name, _, seed = model.partition(", seed ")
    if "start" in rows:
        name, _, place = name.partition(", ")
        rows = rows[rows["table"] == TABLES.get(place, "X-datasets-2")]
    rows = rows[rows["model"] == name].assign(model=model)
    seeds = rows["train_seed"]
    return rows[seeds == float(seed or seeds.min())]


def add_results(folder: Path, rows: pd.DataFrame, model: str) -> None:
    """Write a model's results into the metadata of its card, where the hub looks for them."""
    card = ModelCard.load(folder / CARD)
    if results := eval_results(rows, model):
        card.data.model_name = model
        card.data.eval_results = results
        card.save(folder / CARD)


def push(folder: Path, repository: str) -> str:
    """Upload an encoder's folder to the hub, or that of ``HF_ENDPOINT``, with your own token (``hf auth login``)."""
    if default_store().offline:
        raise Offline(f"{folder} was not uploaded to {repository}: DIALNB_OFFLINE is set")
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        address = hub.create_repo(repository, exist_ok=True)
        hub.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message="Encoder exported by dialnb")
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{folder} was not uploaded to {repository}: {str(error).splitlines()[0]}") from error
    return str(address)
