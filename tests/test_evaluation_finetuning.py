"""Fine-tuning with early stopping, the frozen linear layer, actions and dialogue inference."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from evaluation_standins import WordEncoder
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch import nn

from dialnb.data import Dataset
from dialnb.data.records import Dialogue, InferenceItem, IntentUtterance, QuestionAnswer, Utterance
from dialnb.data.tables import build_table
from dialnb.errors import DataError, TrainingError, UnknownName
from dialnb.evaluation.actions import (
    ActionExample,
    act_matrix,
    act_tagging_examples,
    finetune_actions,
    next_act_examples,
)
from dialnb.evaluation.diaeval import evaluate_actions, evaluate_inference
from dialnb.evaluation.finetuning import ACTIONS, INTENTS, RESPONSES, FineTuning, finetune, in_batches
from dialnb.evaluation.hidden import fit_hidden
from dialnb.evaluation.intent import finetune_intents
from dialnb.evaluation.linear import PENALTIES, fit_linear, probe_texts
from dialnb.evaluation.metrics import accuracy, f1_scores
from dialnb.evaluation.selection import finetune_responses, response_loss
from dialnb.tokens import Tokens

FAST = FineTuning(0.05, batch_size=8, epochs=12, patience=3, eval_steps=1, max_length=16, dropout=0.1)


def test_the_recipes_are_those_of_the_authors_code():
    assert (INTENTS.learning_rate, INTENTS.batch_size, INTENTS.epochs, INTENTS.patience) == (3e-5, 16, 50, 5)
    assert (RESPONSES.learning_rate, RESPONSES.batch_size, RESPONSES.epochs, RESPONSES.patience) == (3e-5, 100, 50, 3)
    assert (ACTIONS.learning_rate, ACTIONS.batch_size, ACTIONS.epochs, ACTIONS.patience) == (5e-5, 32, 100, 3)
    assert [(r.eval_steps, r.dropout, r.max_length) for r in (INTENTS, RESPONSES, ACTIONS)] == [
        (10, 0.1, 64),
        (50, 0.0, 128),
        (30, 0.2, 32),
    ]


def _scripted(scores: list[float], recipe: FineTuning, n: int):
    """Fine-tune one weight while validation returns scripted scores; the weight counts the updates."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    seen: list[float] = []

    def validate() -> float:
        assert not model.training
        seen.append(model.weight.item())
        return scores[min(len(seen), len(scores)) - 1]

    def loss(rows: np.ndarray) -> torch.Tensor:
        assert model.training and 0 < len(rows) <= recipe.batch_size
        return -model.weight.sum()

    finetune(model, n, loss, validate, recipe)
    return model, seen


def test_validation_comes_before_any_update_and_then_once_per_interval():
    recipe = FineTuning(0.1, batch_size=4, epochs=6, patience=99, eval_steps=7, max_length=8)
    _, seen = _scripted([1, 2, 3, 4], recipe, n=10)
    assert seen[0] == 0 and len(seen) == 3, "of 18 steps: 0, 7 and 14"
    dense = FineTuning(0.1, batch_size=4, epochs=3, patience=99, eval_steps=1, max_length=8)
    assert len(_scripted([1], dense, n=10)[1]) == 3, "an epoch has three steps"


def test_training_stops_at_an_epoch_end_after_more_than_patience_fruitless_validations_in_a_row():
    recipe = FineTuning(0.1, batch_size=1, epochs=50, patience=2, eval_steps=1, max_length=8)
    model, seen = _scripted([1, 1, 1, 2, 2, 2, 2, 2, 2], recipe, n=2)
    assert len(seen) == 7 and model.weight.item() == seen[3]


def test_the_model_ends_with_the_weights_that_were_best_on_validation():
    recipe = FineTuning(0.1, batch_size=1, epochs=6, patience=99, eval_steps=1, max_length=8)
    model, seen = _scripted([0.1, 0.5, 0.9, 0.3, 0.2, 0.9], recipe, n=1)
    assert model.weight.item() == seen[2] != 0 and not model.training


def test_the_rate_warms_up_over_five_percent_and_falls_to_zero():
    recipe = FineTuning(1.0, batch_size=1, epochs=40, patience=99, eval_steps=1, max_length=8)
    _, seen = _scripted([1], recipe, n=1)
    steps = np.diff(seen)
    assert steps[0] == 0 and steps[1] == pytest.approx(0.5, abs=0.01)
    assert steps[2] == pytest.approx(1, abs=0.01) and steps[38] == pytest.approx(2 / 38 - 1 / 38, abs=0.05)
    assert (np.diff(steps[2:]) < 0).all()


def test_a_loss_that_is_not_a_number_stops_with_a_sentence():
    model = nn.Linear(1, 1)
    with pytest.raises(TrainingError, match="became nan by step"):
        finetune(model, 4, lambda rows: model.weight.sum() * torch.nan, lambda: 1.0, FAST)


def test_results_in_batches_come_back_in_the_given_order():
    rows = Tokens.from_lists([3] * n for n in (2, 9, 1, 5, 5))
    found = in_batches(lambda part: torch.tensor([[float(len(row))] for row in part]), rows, batch_size=2)
    assert found.ravel().tolist() == [2, 9, 1, 5, 5]


def _intents(n: int, seed: int) -> list[IntentUtterance]:
    generator = random.Random(seed)
    labels = [generator.choice("abc") for _ in range(n)]
    return [IntentUtterance(" ".join(f"{l}{generator.randrange(5)}" for _ in range(3)), l) for l in labels]


def test_intent_fine_tuning_learns_repeats_itself_and_leaves_the_encoder_alone():
    encoder = WordEncoder(dropout=0.1)
    before = encoder.table.weight.detach().clone()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    settings = {"dataset": "toy", "shots": (5,), "seeds": range(2), "recipe": FAST}
    frame = finetune_intents(encoder, _intents(60, 0), _intents(40, 1), **settings)
    assert (frame.value > 70).all() and frame.n.tolist() == [40, 40] and set(frame.protocol) == {"code"}
    assert torch.equal(encoder.table.weight, before) and torch.equal(torch.get_rng_state(), state)
    assert frame.equals(finetune_intents(encoder, _intents(60, 0), _intents(40, 1), **settings))


def test_the_response_loss_of_the_worked_example():
    queries, responses = torch.tensor([[2.0, 0], [0, 1]]), torch.tensor([[1, 0.5], [0.5, 2]])
    assert response_loss(queries, responses).item() == pytest.approx(0.257337, abs=1e-6)


def test_response_fine_tuning_improves_on_the_untrained_encoder():
    generator = random.Random(0)
    numbers = [generator.sample(range(30), 2) for _ in range(260)]
    pairs = [QuestionAnswer(f"q{a} q{b}", f"r{a} r{b}") for a, b in numbers]
    recipe = FineTuning(0.02, batch_size=20, epochs=10, patience=3, eval_steps=5, max_length=16)
    arguments = {"dataset": "toy", "shots": (120,), "seeds": (0,), "size": 20}
    idle = FineTuning(0.0, batch_size=120, epochs=1, patience=0, eval_steps=5, max_length=16)
    trained, untrained = (
        finetune_responses(WordEncoder(), pairs[:200], pairs[200:], recipe=r, **arguments).value for r in (recipe, idle)
    )
    assert trained[0] > untrained[0] + 20 and trained[1] >= trained[0]


# --- actions -----------------------------------------------------------------------------------------------------

DIALOGUE = Dialogue(
    "d",
    (
        Utterance("user", "thai food please", ("inform",)),
        Utterance("system", "which area", ("request",)),
        Utterance("user", "the north", ("inform",)),
        Utterance("system", "try bangkok house", ("offer", "inform")),
        Utterance("user", "thanks", ("thank",)),
    ),
)


def test_act_tagging_puts_the_last_system_utterance_and_its_answer_into_the_input():
    (example,) = act_tagging_examples([DIALOGUE])
    expected = "[SEP] thai food please [SEP] which area [SEP] the north [SEP] [SEP] try bangkok house [SEP] thanks"
    assert example == ActionExample(expected, ("offer", "inform"), split=DIALOGUE.split)
    (opening, *rest) = DIALOGUE.utterances
    long = Dialogue("long", (replace(opening, text="word " * 40), *rest))
    (short,) = act_tagging_examples([long])
    assert short.text.startswith("word word") and len(short.text.split()) == 28


def test_the_honest_variant_of_act_tagging_shows_the_history_only():
    (example,) = act_tagging_examples([DIALOGUE], target_in_input=False)
    assert example.text == "[SEP] thai food please [SEP] which area [SEP] the north" and example.acts == (
        "offer",
        "inform",
    )


def test_next_act_targets_are_all_utterances_from_the_third_on():
    examples = next_act_examples([DIALOGUE, Dialogue("short", DIALOGUE.utterances[:2])])
    assert [example.acts for example in examples] == [("inform",), ("offer", "inform"), ("thank",)]
    assert examples[0].text == "thai food please [SEP] which area"


def test_an_act_outside_the_given_columns_is_named():
    with pytest.raises(DataError, match="act 'bye' is not among the 1 label columns"):
        act_matrix([ActionExample("x", ("bye",))], ["inform"])


def _acts(n: int, seed: int) -> list[ActionExample]:
    generator = random.Random(seed)
    rows = []
    for _ in range(n):
        acts = tuple(act for act in ("inform", "offer", "request") if generator.random() < 0.5) or ("inform",)
        rows.append(ActionExample(" ".join(f"{act}{generator.randrange(3)}" for act in acts), acts))
    return rows


def _spoken(folder, parts: dict[str, list[ActionExample]]) -> Dataset:
    """Dialogues whose third utterance has the acts of an example, which the first one tells."""
    talks = []
    for split, examples in parts.items():
        for i, example in enumerate(examples):
            said = [
                Utterance("user", example.text, ("never",)),
                Utterance("user", "x"),
                Utterance("system", "y", example.acts),
            ]
            talks.append(Dialogue(f"{split} {i}", tuple(said), split=split))
    table = build_table(talks, folder / "talks.json", "talks")
    return Dataset("talks", "", "none", "talks", table, np.arange(len(talks)))


def test_action_fine_tuning_reports_f1_over_all_columns_and_over_present_classes(tmp_path):
    records = _spoken(tmp_path, {"train": _acts(90, 0), "test": _acts(50, 1)})
    frame = finetune_actions(WordEncoder(), records, dataset="toy", shots=(10,), seeds=(0,), recipe=FAST)
    assert set(frame.protocol) == {"code", "clean"}
    frame = frame[frame.protocol == "clean"]
    values = frame.set_index("metric").value
    assert values["Micro-F1"] > 65 and values["Macro-F1"] == pytest.approx(0.75 * values["Macro-F1 present"])
    assert (frame.train_size <= 30).all() and (frame.train_size > 10).all()


def test_a_frozen_linear_layer_predicts_actions_and_names_its_grid_point(tmp_path):
    encoder = WordEncoder(dim=48)
    before = encoder.table.weight.detach().clone()
    records = _spoken(tmp_path, {"train": _acts(200, 0), "dev": _acts(60, 1), "test": _acts(60, 2)})
    frame = evaluate_actions(encoder, records, dataset="toy")
    means = frame.groupby("metric").value.mean()
    assert means["Micro-F1"] > 90 and torch.equal(encoder.table.weight, before)
    assert frame.penalty.isin(PENALTIES).all() and frame.seed.nunique() == 10
    assert frame.equals(evaluate_actions(encoder, records, dataset="toy"))


# --- linear layer and inference ----------------------------------------------------------------------------------


def test_the_linear_layer_reaches_the_accuracy_of_logistic_regression():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(900, 12))
    labels = (vectors @ generator.normal(size=(12, 3)) + 0.5 * generator.normal(size=(900, 3))).argmax(1)
    reference = LogisticRegression(max_iter=500).fit(vectors[:500], labels[:500]).score(vectors[700:], labels[700:])
    train, validation = ((vectors[part], labels[part]) for part in (slice(500), slice(500, 700)))
    probe = fit_linear(train, validation, lambda logits, y: accuracy(logits.argmax(1), y))
    assert accuracy(probe.logits(vectors[700:]).argmax(1), labels[700:]) >= 100 * reference - 3


@pytest.mark.parametrize("several", [False, True])
def test_the_hidden_layer_learns_what_no_linear_layer_can(several):
    rng = np.random.default_rng(0)
    vectors = 50 + 9 * rng.choice([-1.0, 1.0], (400, 2)) + rng.normal(size=(400, 2))  # far from standardised
    odd = ((vectors - 50) > 0).sum(1) % 2
    targets = np.stack([odd, 1 - odd], 1).astype(np.int8) if several else odd
    parts = (vectors[:200], targets[:200]), (vectors[200:300], targets[200:300])

    def right(logits, gold):
        return accuracy((logits > 0).astype(int)[:, 0], gold[:, 0]) if several else accuracy(logits.argmax(1), gold)

    scores = {fit: right(fit(*parts, right).logits(vectors[300:]), targets[300:]) for fit in (fit_linear, fit_hidden)}
    assert scores[fit_linear] < 75 < 98 < scores[fit_hidden]


def test_a_probe_of_an_unknown_kind_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'hidden'"):
        probe_texts(None, [["a"]] * 3, [np.zeros(1)] * 3, accuracy, 8, "hiden")


def test_the_linear_layer_keeps_the_best_penalty_and_of_equal_ones_the_strongest():
    vectors, labels = np.eye(4), np.array([0, 1, 0, 1])
    scores = iter([1, 6, 6])
    probe = fit_linear((vectors, labels), (vectors, labels), lambda *_: next(scores), penalties=(1.0, 0.1, 0.01))
    assert probe.penalty == 0.1


@pytest.mark.parametrize("several", [False, True])
def test_the_linear_layer_is_at_the_minimum_of_its_penalised_loss(several):
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(300, 5)) @ np.diag([1, 10, 0.1, 1, 3]) + 4
    targets = generator.integers(0, 2, (300, 3)) if several else generator.integers(0, 2, 300)
    probe = fit_linear((vectors, targets), (vectors, targets), lambda *_: 1.0, penalties=(0.03,))
    white = PCA(whiten=True).fit_transform(vectors)
    for number in range(3) if several else [1]:
        wanted = targets[:, number] if several else targets
        # two softmax logits share the norm of the one that scikit-learn's binary model has
        reference = LogisticRegression(C=(1 if several else 2) / (0.03 * 300), tol=1e-8).fit(white, wanted)
        own = probe.logits(vectors)
        found = own[:, number] if several else own[:, 1] - own[:, 0]
        np.testing.assert_allclose(found, reference.decision_function(white), atol=0.01)


@settings(max_examples=8)
@given(st.integers(0, 1000), st.floats(0, 3))
def test_an_invertible_map_of_the_vectors_moves_neither_f1_by_a_point(seed, decades):
    generator = np.random.default_rng(seed)
    vectors = (generator.normal(size=(600, 12)) * np.geomspace(1, 0.01, 12)).astype(np.float32)
    labels = vectors / np.geomspace(1, 0.01, 12) @ generator.normal(size=(12, 4)) + generator.normal(size=(600, 4)) > 1
    rotations = [np.linalg.qr(generator.normal(size=(12, 12)))[0] for _ in range(2)]
    mapped = vectors @ (rotations[0] * np.logspace(-decades / 2, decades / 2, 12) @ rotations[1]) + 5
    scores = []
    for features in (vectors, mapped):
        parts = [(features[part], labels[part]) for part in (slice(300), slice(300, 400), slice(400, 600))]
        probe = fit_linear(*parts[:2], lambda logits, gold: f1_scores(gold, logits > 0)["Micro-F1"])
        scores.append(f1_scores(parts[2][1], probe.logits(parts[2][0]) > 0))
    assert scores[0]["Micro-F1"] > 60
    assert all(abs(scores[0][name] - scores[1][name]) < 1 for name in ("Micro-F1", "Macro-F1"))


def _items(n: int, seed: int) -> list[InferenceItem]:
    generator = random.Random(seed)
    rows = []
    for i in range(n):
        label = "contradiction" if generator.random() < 0.3 else "consistent"
        filler = tuple(f"w{generator.randrange(20)}" for _ in range(2))
        rows.append(InferenceItem(str(i), (*filler, "no never" if label == "contradiction" else "yes right"), label))
    return rows


def test_inference_prints_the_majority_floor_beside_the_accuracy():
    test = _items(60, 2)
    frame = evaluate_inference(WordEncoder(), _items(200, 0), _items(60, 1), test, dataset="toy", groups=1)
    frame = frame.set_index("protocol")
    assert frame.value["floor"] == pytest.approx(100 * sum(item.label == "consistent" for item in test) / 60)
    assert frame.value["paper"] > 95 and frame.n.tolist() == [60, 60]


def test_the_encoder_is_asked_to_keep_the_end_of_the_dialogue():
    asked = []

    class Recorder(WordEncoder):
        def encode(self, texts, **settings):
            asked.append((texts[0], settings))
            return super().encode(texts, **settings)

    evaluate_inference(Recorder(), _items(20, 0), _items(10, 1), _items(10, 2), dataset="toy")
    assert asked[0][1] == {"max_length": 256, "truncate": "left"} and " [SEP] " in asked[0][0]


def test_a_multiple_of_the_rate_changes_nothing_else():
    assert INTENTS.times(10) == replace(INTENTS, learning_rate=10 * INTENTS.learning_rate)
    assert INTENTS.times(1) == INTENTS
