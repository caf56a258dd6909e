"""Evaluators: an encoder (or a scorer of candidate lists) in, tidy rows out.

Every evaluator returns a data frame with the columns task, dataset, metric, protocol, seed, value, n and the settings
that tell rows apart. ``protocol`` is ``paper``, ``code`` or ``clean`` (no test-set peeking), or ``floor`` for what a
trivial method reaches. Values are percentages, except the R_n@k family of response selection, which is in fractions as
UMS prints it. Splits, blocks and adversarial sets depend on data and seed only, so all models share them.

An evaluator is written as a generator of (values by metric, settings) under `evaluator` of `metrics`, which adds the
task and the name of the dataset.
"""

from dialnb.evaluation import geometry
from dialnb.evaluation.actions import act_tagging_examples, evaluate_actions, finetune_actions, next_act_examples
from dialnb.evaluation.adversarial import build_adversarial, evaluate_adversarial
from dialnb.evaluation.diaeval import evaluate_inference
from dialnb.evaluation.intent import evaluate_knn, evaluate_prototypes, finetune_intents
from dialnb.evaluation.retrieval import evaluate_retrieval
from dialnb.evaluation.scope import evaluate_scope
from dialnb.evaluation.selection import (
    evaluate_blocks,
    evaluate_candidates,
    finetune_responses,
    selection_rows,
)
from dialnb.evaluation.similarity import evaluate_nli_probe, evaluate_similarity

__all__ = [
    "act_tagging_examples",
    "build_adversarial",
    "evaluate_actions",
    "evaluate_adversarial",
    "evaluate_blocks",
    "evaluate_candidates",
    "evaluate_inference",
    "evaluate_knn",
    "evaluate_nli_probe",
    "evaluate_prototypes",
    "evaluate_retrieval",
    "evaluate_scope",
    "evaluate_similarity",
    "finetune_actions",
    "finetune_intents",
    "finetune_responses",
    "geometry",
    "next_act_examples",
    "selection_rows",
]
