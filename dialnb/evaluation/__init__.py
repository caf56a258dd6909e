"""Evaluators: an encoder (or a scorer of candidate lists) in, tidy rows out.

Every evaluator returns a data frame with the columns task, dataset, metric, protocol, seed, value, n and the settings
that tell rows apart. ``protocol`` is ``paper``, ``code`` or ``clean`` (no test-set peeking), or ``floor`` for what a
trivial method reaches. Values are percentages, except the R_n@k family of response selection, which is in fractions as
UMS prints it. Splits, blocks and adversarial sets depend on data and seed only, so all models share them.

An evaluator is written as a generator of (values by metric, settings) under `evaluator` of `metrics`, which adds the
task and the name of the dataset.
"""

from dialnb import lazily

ROOMS = {
    "actions": "act_tagging_examples finetune_actions majority_tags next_act_examples",
    "adversarial": "build_adversarial evaluate_adversarial",
    "diaeval": "evaluate_actions evaluate_inference majority_actions majority_inference",
    "foreign": "as_encoder",
    "intent": "evaluate_knn evaluate_prototypes finetune_intents guess_intents",
    "metrics": "Scores each_group evaluator group_scores stacked tidy_frame tidy_rows",
    "scope": "evaluate_scope reject_all",
    "selection": "evaluate_blocks evaluate_candidates finetune_responses rank_unlearned selection_rows",
    "similarity": "evaluate_nli_probe evaluate_retrieval evaluate_similarity",
    "vectors": "EncodeOnce Examples SupportsEncode encode label_ids nearest normalise",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)  # metrics need no torch, which evaluators load
