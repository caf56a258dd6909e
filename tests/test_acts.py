"""Universal acts: nineteen columns for DSTC2, thirteen for GSIM, and nothing in the data without a place among them."""

from __future__ import annotations

import pytest

from dialnb.data import load
from dialnb.data.records import Dialogue, Utterance
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.actions import act_matrix, next_act_examples
from dialnb.examples.acts import _mapping, act_columns, with_universal_acts

COLUMNS = {"DSTC2": 19, "GSIM": 13}


def _dialogue(*utterances: Utterance) -> Dialogue:
    return Dialogue("one", utterances)


@pytest.mark.parametrize("dataset", COLUMNS)
def test_user_and_system_together_have_the_printed_number_of_columns(dataset):
    columns = act_columns(dataset)
    assert len(columns) == COLUMNS[dataset] == len(set(columns)) and columns == sorted(columns)


def test_gsim_has_six_system_acts_as_in_dse():
    assert set(_mapping("GSIM")["system"].values()) - {None} == {
        "request", "sys_expl_confirm", "sys_negate", "sys_notify_failure", "sys_notify_success", "sys_offer",
    }  # fmt: skip


def test_speakers_keep_their_own_negation():
    (made,) = with_universal_acts(
        [_dialogue(Utterance("system", "no", ("NEGATE",)), Utterance("user", "no", ("NEGATE", "OTHER")))], "GSIM"
    )
    assert [u.acts for u in made.utterances] == [("sys_negate",), ("user_negate",)], "OTHER is left out"


def test_acts_that_become_one_are_named_once():
    acts = ("select", "offer", "canthelp", "exception", "inform")
    (made,) = with_universal_acts([_dialogue(Utterance("system", "sorry", acts))], "DSTC2")
    assert made.utterances[0].acts == ("sys_offer", "sys_notify_failure", "inform")


def test_an_unknown_act_is_an_error_that_says_where():
    with pytest.raises(DataError, match="GSIM dialogue one: the user's act 'SELECT' has no universal act"):
        with_universal_acts([_dialogue(Utterance("user", "this one", ("SELECT",)))], "GSIM")
    with pytest.raises(UnknownName, match="SGD"):
        act_columns("SGD")


@pytest.mark.parametrize(
    ("dataset", "sizes"),
    [
        ("DSTC2", {"train": 20_130, "dev": 6856, "test": 17_546}),
        ("GSIM", {"train": 11_831, "dev": 2837, "test": 6505}),
    ],
)
def test_every_act_of_the_data_has_a_column_and_the_samples_are_as_many_as_printed(mirror_store, dataset, sizes):
    data = load(dataset, store=mirror_store)
    columns = act_columns(dataset)
    present = set()
    for split, size in sizes.items():
        dialogues = with_universal_acts(data.filter(split=split), dataset)
        labels = act_matrix(next_act_examples(dialogues), columns)
        assert labels.shape == (size, COLUMNS[dataset])
        present |= {act for d in dialogues for u in d.utterances if u.speaker == "system" for act in u.acts}
    assert len(present) == {"DSTC2": 8, "GSIM": 6}[dataset], "system acts that occur"
