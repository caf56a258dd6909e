"""The tasks of the papers for mteb, on the bundled data: ``mteb.evaluate`` runs them on any of its models.

Scores are fractions, as mteb has them. The tidy rows behind them travel with the result and come back by `tidy_rows`,
equal to those of our own evaluators.

>>> results = mteb.evaluate(model, [task() for task in TASKS])          # doctest: +SKIP
>>> tidy_rows(results)                                                  # doctest: +SKIP
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from pandas import DataFrame

from dialnb import __version__
from dialnb.data import Dataset, load, named_data
from dialnb.data.sources import load_registry
from dialnb.ecosystem import citation
from dialnb.evaluation import (
    EncodeOnce,
    as_encoder,
    evaluate_actions,
    evaluate_adversarial,
    evaluate_inference,
    evaluate_prototypes,
    evaluate_scope,
    tidy_frame,
)
from dialnb.evaluation.bundled import INTENT_SETS
from dialnb.evaluation.diaeval import retrieval_of
from dialnb.files import read_yaml

try:
    from mteb.abstasks.abstask import AbsTask
    from mteb.abstasks.task_metadata import TaskMetadata
except ImportError as error:
    raise ImportError("dialnb.ecosystem.tasks needs mteb: pip install 'dialnb[mteb]'") from error


def described(name: str) -> TaskMetadata:
    """Describe a task as `tasks.yaml` does; licences are those of the registry."""
    about = read_yaml(__file__, "tasks.yaml")[name]
    sources, paper = about.pop("sources"), about.pop("paper")
    licences = {load_registry()[source].licence.lower() for source in sources.values()}
    return TaskMetadata(
        name=name,
        **about,
        dataset={"path": "dialnb/bundled", "revision": __version__},
        eval_langs={subset: ["eng-Latn"] for subset in sources},
        license=licences.pop() if len(licences) == 1 else "multiple",
        bibtex_citation=citation(paper),
    )


class DialogueTask(AbsTask):
    """What our tasks share: bundled data, and scores that are means of tidy rows."""

    unit = 100
    """What our values are divided by to be fractions."""

    score = ""
    """The rows whose means by metric are the scores, as a query; all without one."""

    limits: ClassVar[dict[str, int]] = {}

    def load_data(self, *_: Any, **options: Any) -> None:
        """Data come with the package: a subset is read when it is evaluated."""
        self.dataset = {subset: {"test": subset} for subset in self.hf_subsets}
        self.data_loaded = True

    ask: ClassVar[Callable[..., DataFrame]]
    """The evaluator, of the encoder and the records of a subset."""

    def records(self, subset: str) -> Dataset:
        """The data of one subset."""
        raise NotImplementedError

    def _evaluate_subset(self, model: Any, data_split: str, **options: Any) -> dict[str, Any]:
        encoder = EncodeOnce(as_encoder(model, self.metadata))
        rows = self.ask(encoder, self.records(data_split), dataset=data_split, **self.limits)
        scored = rows.query(self.score) if self.score else rows
        means = scored.groupby("metric", sort=False)["value"].mean() / self.unit
        return means.to_dict() | {"rows": json.loads(rows.to_json(orient="records", double_precision=15))}

    def _calculate_descriptive_statistics_from_split(self, split: str, **options: Any) -> Any:
        return {"num_samples": len(self.hf_subsets)}


class DSEFewShotIntents(DialogueTask):
    """Few-shot intents by prototypes; the score is the 1-shot accuracy, the rows have 5 shots too."""

    metadata = described("DSEFewShotIntents")
    score = "shots == 1"
    ask = staticmethod(evaluate_prototypes)

    def records(self, subset: str) -> Dataset:
        source, variant = INTENT_SETS[subset]
        return load(f"bundled/{source}", variant)


class DSEOutOfScope(DialogueTask):
    """Out-of-scope detection; the score is that of the authors' code with one shot and the mean as threshold."""

    metadata = described("DSEOutOfScope")
    score = "protocol == 'code' and shots == 1 and threshold == 'mean'"
    ask = staticmethod(evaluate_scope)

    def records(self, subset: str) -> Dataset:
        return load("bundled/CLINC150", "plus")


class DiaEvalTask(DialogueTask):
    """A task of DiaEval, and what `papers/wmdc/data.yaml` calls its data."""

    data: ClassVar[str]

    def records(self, subset: str) -> Dataset:
        return named_data("wmdc", self.data, "bundled")[0][subset]


class DiaEvalActions(DiaEvalTask):
    """Action prediction of DiaEval with a linear layer on a frozen encoder."""

    metadata = described("DiaEvalActions")
    ask, data = staticmethod(evaluate_actions), "actions"


class DiaEvalInference(DiaEvalTask):
    """Dialogue inference of DiaEval with a linear layer on a frozen encoder."""

    metadata = described("DiaEvalInference")
    ask, data = staticmethod(evaluate_inference), "consistency"
    score = "protocol != 'floor'"


class DiaEvalRetrieval(DiaEvalTask):
    """Response retrieval of DiaEval by cosine."""

    metadata = described("DiaEvalRetrieval")
    ask, data = staticmethod(retrieval_of), "candidates"
    score = "ties == 'against'"


class UMSAdversarialSelection(DialogueTask):
    """Response selection where one negative was said before in the dialogue itself."""

    unit = 1
    metadata = described("UMSAdversarialSelection")
    score = "ties == 'against'"
    ask = staticmethod(evaluate_adversarial)

    def records(self, subset: str) -> Dataset:
        return load("bundled/UbuntuIRC", "selection-10").filter(split="test")


TASKS = (
    DSEFewShotIntents,
    DSEOutOfScope,
    DiaEvalActions,
    DiaEvalInference,
    DiaEvalRetrieval,
    UMSAdversarialSelection,
)


def limited(task: type[DialogueTask], **limits: int) -> DialogueTask:
    """A smaller task for a first look, under a name of its own, so that mteb does not keep its scores as the task's.

    Limits are ``limit`` for all and, where something is learned, ``train_limit``.
    """
    suffix = "".join(f"-{name}{limit}" for name, limit in limits.items())
    named = task.metadata.model_copy(update={"name": task.metadata.name + suffix})
    return type(task.__name__, (task,), {"metadata": named, "limits": limits})()


def tidy_rows(results: Any) -> DataFrame:
    """The tidy rows of what ``mteb.evaluate`` returns, with the columns ``encoder`` and ``mteb_task``."""
    rows = []
    for result in results.task_results:
        named = {"encoder": results.model_name, "mteb_task": result.task_name}
        for scores in result.scores["test"]:
            rows += [row | named for row in scores.get("rows", [])]
    return tidy_frame(rows)
