"""Masked-language-model examples: what is hidden, by what, and what is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dialnb.data.corpora import Conversation
from dialnb.errors import DataError
from dialnb.examples.masking import MaskedExamples
from dialnb.tokens import Tokens, pack
from dialnb.training import TrainingSettings, train
from dialnb.training.recipes import fit
from tools.mini import UNASKED, Imitation, TaughtRecipe, dialogue_examples, words_of

SPECIAL = frozenset(range(5))
ROWS = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), min_size=1, max_size=8)


def examples_of(rows, probability=0.15):
    return MaskedExamples(Tokens.from_lists(rows), mask_id=4, special=SPECIAL, vocabulary=61, probability=probability)


@given(ROWS, st.integers(0, 2**32), st.floats(0, 1))
def test_masks_fall_on_words_and_labels_are_the_hidden_words(rows, seed, probability):
    examples = examples_of(rows, probability)
    batch = examples.batch(np.arange(len(rows)), np.random.default_rng(seed))
    masked = batch.tokens["masked"]
    asked = {}
    for sequence, position, label in zip(
        *(batch.arrays[f"masked_{k}"] for k in ("sequence", "position", "label")), strict=True
    ):
        assert rows[sequence][position] == label and label not in SPECIAL
        asked[int(sequence), int(position)] = label
    assert batch.counts == {"mlm": len(asked), "rtd": sum(map(len, rows))} and len(asked) == len(
        batch.arrays["masked_label"]
    )
    for s, row in enumerate(rows):
        assert len(masked[s]) == len(row)
        for p, word in enumerate(row):
            if (s, p) not in asked:
                assert masked[s][p] == word, "what is not asked for is not changed"
            assert 0 <= masked[s][p] < 61
    assert [row.tolist() for row in examples.tokens] == rows, "the examples themselves stay"


def test_fifteen_percent_are_hidden_and_split_eighty_ten_ten():
    words = np.random.default_rng(0).integers(5, 1000, 200_000)
    examples = MaskedExamples(Tokens.from_lists([words]), mask_id=4, special=SPECIAL, vocabulary=1000)
    batch = examples.batch(np.array([0]), np.random.default_rng(1))
    labels = batch.arrays["masked_label"]
    assert len(labels) / len(words) == pytest.approx(0.15, abs=0.003)
    shown = batch.tokens["masked"].ids[batch.arrays["masked_position"]]
    assert np.mean(shown == 4) == pytest.approx(0.8, abs=0.01)
    assert np.mean(shown == labels) == pytest.approx(0.1, abs=0.01)
    swapped = shown[(shown != 4) & (shown != labels)]
    assert len(swapped) / len(labels) == pytest.approx(0.1, abs=0.01)
    assert len(np.unique(swapped)) > 800, "from the whole vocabulary"


def test_masks_are_a_function_of_the_generator():
    examples = examples_of([list(range(5, 60))])
    draw = [
        examples.batch(np.array([0]), np.random.default_rng(seed)).tokens["masked"].ids.tolist() for seed in (1, 1, 2)
    ]
    assert draw[0] == draw[1] != draw[2]


@given(ROWS)
def test_packed_places_point_at_the_hidden_words(rows):
    batch = examples_of(rows, 0.5).batch(np.arange(len(rows)), np.random.default_rng(0))
    sequence, position, label = (
        torch.from_numpy(batch.arrays[f"masked_{k}"]) for k in ("sequence", "position", "label")
    )
    places = pack(Tokens.from_lists(rows)).places(sequence, position)
    assert pack(Tokens.from_lists(rows)).ids[places].tolist() == label.tolist()


def test_an_encoder_says_what_is_special():
    encoder = tiny.encoder()
    examples = MaskedExamples.from_tokens(encoder, encoder.tokenize(["book a table", "hello"]), 1.0)
    assert examples.vocabulary == 96 and examples.mask_id == 4 and len(examples) == 2
    batch = examples.batch(np.array([1, 0]), np.random.default_rng(0))
    assert batch.counts == {"mlm": 4, "rtd": 8}
    assert [int(row[0]) for row in batch.tokens["masked"]] == [2, 2]
    assert [int(row[-1]) for row in batch.tokens["masked"]] == [3, 3]


def test_a_tokenizer_without_a_mask_is_refused():
    encoder = tiny.encoder()
    encoder.tokenizer.mask_token = None
    with pytest.raises(DataError, match="no mask token"):
        MaskedExamples.from_tokens(encoder, encoder.tokenize(["hello"]))


def talks(corpus: str, count: int, turns: int = 5) -> list[Conversation]:
    """Dialogues of one corpus, every utterance of words that say where it stands."""
    words = tiny.WORDS[:8] if corpus == "first" else tiny.WORDS[8:16]
    return [Conversation(corpus, tuple(f"{words[i % 8]} {words[t]}" for t in range(turns))) for i in range(count)]


def test_dialogues_are_read_in_two_segments_whose_second_is_next_or_of_the_same_corpus():
    encoder = tiny.encoder()
    dialogues = [*talks("first", 8), *talks("second", 8), Conversation("loose", ("ok", "bye"), paired=False)]
    examples = dialogue_examples(encoder, dialogues, 16)
    alone, rng = len({u for d in dialogues for u in d.utterances}), np.random.default_rng(3)
    assert len(examples) == alone + 16 and len(examples.masks) == alone
    said = [
        {word for d in part for u in d.utterances for word in u.split()} for part in (dialogues[:8], dialogues[8:16])
    ]
    seen = set()
    for _ in range(20):
        tokens, random = examples.segments(np.arange(16), rng)
        assert tokens.lengths.max() <= 16
        for row in range(16):
            ids, types = tokens[row], tokens.types[tokens.offsets[row] : tokens.offsets[row + 1]]
            pieces = np.array(encoder.tokenizer.convert_ids_to_tokens(ids))
            first, second = pieces[types == 0], pieces[types == 1]
            assert first[0] == "[CLS]" and first[-1] == second[-1] == "[SEP]" and (np.diff(types) >= 0).all()
            words = set(pieces) - {"[CLS]", "[SEP]"}
            assert any(words <= own for own in said), "never from another corpus"
            assert (first[-3] == second[0]) or random[row], "the next one is of the same dialogue"
            seen.add((int(random[row]), len(second) > 3))
    assert seen == {(0, False), (0, True), (1, False), (1, True)}
    batch = examples.batch(np.arange(len(examples)), rng)
    assert batch.counts["nsp"] == 16 and (batch.arrays["next_label"][:alone] == UNASKED).all()
    objective, same = TaughtRecipe(max_length=16).lessons(encoder, dialogues, None)
    assert set(objective.terms(encoder, batch)) == {"mlm", "nsp"} and len(same) == len(examples)


def test_a_teacher_is_heard_word_by_word_though_its_pieces_differ():
    pupil, teacher = tiny.encoder(seed=1), tiny.encoder(seed=2)
    examples = dialogue_examples(pupil, talks("first", 6), 16, teacher=teacher)
    batch = examples.batch(np.arange(len(examples)), np.random.default_rng(0))
    objective = Imitation(pupil, teacher)
    objective.bridge.load_state_dict({"weight": torch.eye(pupil.dim), "bias": torch.zeros(pupil.dim)})
    assert batch.counts["imitation"] == sum(len(examples.masks.tokens[i]) for i in range(len(examples.masks)))
    terms = objective.terms(pupil, batch)
    assert set(terms) == {"mlm", "nsp", "imitation"} and all(torch.isfinite(t) for t in terms.values())
    assert not {id(p) for p in teacher.parameters()} & {id(p) for p in objective.parameters()}
    np.testing.assert_array_equal(words_of(np.array([4, 9, 8, 9, 4]), np.arange(10) == 9), [0, 0, 1, 1, 2])


def test_masked_words_train_the_word_head_alone_before_anything_else_moves(monkeypatch):
    encoder, moved = tiny.encoder(), []
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    stages = []

    def watched(*arguments, **options):
        stages.append((options["name"], arguments[3].learning_rate))
        result = train(*arguments, **options)
        moved.append(any(not torch.equal(value, before[name]) for name, value in encoder.state_dict().items()))
        return result

    monkeypatch.setattr("dialnb.training.recipes.train", watched)
    settings = TrainingSettings(batch_size=8, max_steps=2, learning_rate=2e-4)
    result = fit("masked words", encoder, talks("first", 6), settings).result
    assert stages == [("masked words, head alone", 1e-3), ("masked words", 2e-4)]
    assert moved == [False, True] and result.steps == 2
