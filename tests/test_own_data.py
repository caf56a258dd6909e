"""Data of one's own: files become records, wrong files become sentences, and records go through every method."""

from __future__ import annotations

import json
import pickle
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import tiny

from dialnb import evaluation
from dialnb.cli import main
from dialnb.data import from_csv, from_jsonl
from dialnb.data.corpora import Conversation, sentences_of
from dialnb.data.own import from_file
from dialnb.data.readers.irc import build_selection
from dialnb.data.records import Dialogue, IntentUtterance, QuestionAnswer, ScoredPair, SelectionGroup, Slot, Utterance
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation import bundled
from dialnb.evaluation.own import evaluate_own
from dialnb.evaluation.selection import cosine_scorer
from dialnb.examples.manipulations import TASKS, manipulation_examples
from dialnb.examples.matching import build_groups, build_retrieval, labelled_utterances, matching_examples, sessions
from dialnb.examples.own import conversations_of, count_examples
from dialnb.examples.recogniser import with_entities
from dialnb.examples.templates import Augmentation
from dialnb.models.selector import Selector
from dialnb.training import TrainingSettings, train
from dialnb.training.objectives import ManipulationObjective, MatchingGuidedObjective
from dialnb.training.recipes import fit

EXAMPLES = Path(str(files("dialnb"))) / "assets" / "examples"
STEP = TrainingSettings(batch_size=8, max_steps=1, learning_rate=1e-3)


def written(folder: Path, text: str, name: str = "shop.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- what is read -----------------------------------------------------------------------------------------------------


def test_utterances_with_intents_slots_and_splits(tmp_path):
    path = written(tmp_path, "Text,intent,slots,split\nFly to Boston,flight,city=boston,valid\n\nhello,greet,,\n")
    assert list(from_csv(path)) == [
        IntentUtterance("Fly to Boston", "flight", (Slot("city", "Boston", 7, 13),), split="dev"),
        IntentUtterance("hello", "greet"),
    ]


def test_equal_values_of_two_slots_lie_at_two_places(tmp_path):
    path = written(tmp_path, "text,slots\nfrom Rome to Rome,from=Rome|to=Rome\n")
    assert [(slot.start, slot.end) for slot in from_csv(path)[0].slots] == [(5, 9), (13, 17)]


def test_rows_of_a_dialogue_belong_together_wherever_they_stand(tmp_path):
    path = written(
        tmp_path, 'dialogue,speaker,text,acts\na,customer,"hi, there",greet\nb,,no,\na,Agent,hello,greet|ask\n'
    )
    first, second = from_csv(path)
    assert first.utterances == (
        Utterance("user", "hi, there", ("greet",)),
        Utterance("system", "hello", ("greet", "ask")),
    )
    assert (second.id, second.utterances[0].speaker) == ("b", "user")


def test_other_separators_and_a_byte_order_mark_are_seen(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes("\ufefftext;intent\nhi, you;greet\n".encode())
    assert list(from_csv(path)) == [IntentUtterance("hi, you", "greet")]
    assert list(from_file(written(tmp_path, "text\tintent\nhi\tgreet\n", "a.tsv"))) == [IntentUtterance("hi", "greet")]


@pytest.mark.parametrize(
    ("row", "record"),
    [
        ({"text": "to Boston", "slots": {"city": "Boston"}},
         IntentUtterance("to Boston", "", (Slot("city", "Boston", 3, 9),))),
        ({"id": 7, "utterances": ["hi", "hello"], "split": "test"},
         Dialogue("7", (Utterance("user", "hi"), Utterance("system", "hello")), split="test")),
        ({"id": "d", "utterances": [{"text": "hi", "speaker": "bot", "acts": ["greet"]}], "domain": ["shop"]},
         Dialogue("d", (Utterance("system", "hi", ("greet",)),), ("shop",))),
        ({"id": "s", "context": ["hi"], "candidates": ["a", "b"], "labels": [0, 1], "split": "test"},
         SelectionGroup("s", ("hi",), ("a", "b"), (0, 1))),
        ({"question": "q", "answer": "a"}, QuestionAnswer("q", "a")),
        ({"first": "a", "second": "b", "score": 3, "split": "test"}, ScoredPair("a", "b", 3.0)),
    ],
)  # fmt: skip
def test_json_lines_hold_every_kind_of_record(tmp_path, row, record):
    assert list(from_jsonl(written(tmp_path, json.dumps(row) + "\n\n", "mine.jsonl"))) == [record]


def test_columns_of_other_names_are_named(tmp_path):
    path = written(tmp_path, "Utterance,Label,text\nhi,greet,x\n")
    assert list(from_csv(path, columns={"text": "Utterance", "intent": "Label"})) == [IntentUtterance("hi", "greet")]


def test_a_share_of_every_intent_is_held_out_once_and_for_all():
    mine = from_csv(EXAMPLES / "utterances.csv", held_out=0.25)
    test = mine.filter(split="test")
    assert sorted(test.column("intent")) == sorted(["track", "return", "refund", "stock"] * 2)
    assert list(test) == list(from_csv(EXAMPLES / "utterances.csv", held_out=0.25).filter(split="test"))


def test_a_file_is_known_by_its_content_and_options_and_crosses_to_another_process(tmp_path):
    path = written(tmp_path, "text,intent\nhi,greet\nbye,leave\n")
    mine = from_csv(path)
    assert list(pickle.loads(pickle.dumps(mine[1:]))) == [IntentUtterance("bye", "leave")]  # noqa: S301
    assert mine.fingerprint == from_csv(path).fingerprint != from_csv(path, held_out=0.5).fingerprint
    written(tmp_path, "text,intent\nhi,greet\n")
    assert len(from_csv(path)) == 1


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "shop.csv is empty"),
        ("text,intent\n", "column names but no rows"),
        ("Utterance,Label\nhi,greet\n",
         "not the columns .*found: Utterance, Label. What is read: .*selection: context.*--column 'text=Utterance'"),
        ("text,intent\nhi,greet\n ,greet\nhi, you,greet\n",
         "2 bad row.*line 3: 'text' is empty; line 4: not 2 cells; is a text with a separator not quoted"),
        ("text,split\nhi,tset\n", "line 2: split 'tset' is none of train, dev, test"),
        ("text,slots\nhi,city=Rome\n", "line 2: slot city=Rome does not occur in the text"),
        ("text,slots\nto Rome,Rome\n", "line 2: slots are written name=value"),
        ("\ntext\nhi\n", "shop.csv names no columns: its first line should hold their names"),
        ("\ufeff\r\n\r\ntext\n", "shop.csv names no columns"),
        ("text,text\nhi,you\n", "two columns named 'text'"),
        ("text,Text\nhi,you\n", "columns 'text' and 'Text', which may both be the text: .*--column text=Text"),
        ("first,second,score\na,b,high\n", "line 2: score 'high' is not a number"),
        ("context,candidates,labels\nhi,a|b,1\n", "line 2: 'labels' should be 0 or 1 for each of the 2 candidates"),
        ("text\n" + "\t\nx,y\n" * 7, "7 bad row.*and 2 more"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_answered_with_a_sentence(tmp_path, text, said):
    with pytest.raises(DataError, match=f"(?s){said.replace('{', '[{]')}"):
        from_csv(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"text": "hi"}\n{"text": \n', "mine.jsonl line 2 should be a JSON object"),
        ("{}\n{}\n", "mine.jsonl names no columns: .*or each object its keys"),
        ('["hi"]\n', "line 1 should be a JSON object"),
        ('{"text": ["hi"]}\n', "line 1: 'text' should be text, but is"),
        ('{"utterances": "a|b", "label": "x"}\n{"utterances": 3, "label": "x"}\n', "line 2: .utterances. should be"),
        ('{"utterances": [3]}\n', "an utterance is a text or an object"),
        ('{"text": "hi"}\n{"Text": "you"}\n', "columns 'text' and 'Text'"),
        ('{"text": "hi"}\n{"text": "half \\ud83d"}\n', "line 2 should be .*half a character"),
        ('{"text": "whole \\ud83d\\ude00"}\n{"text": 3, "slots": "x"}\n', "line 2: slots are written"),
        ('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1 should be .*nested too deeply"),
    ],
)  # fmt: skip
def test_wrong_json_lines_are_answered_with_a_sentence(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        from_jsonl(written(tmp_path, text, "mine.jsonl"))


def test_of_two_columns_that_differ_in_case_the_one_that_is_named_is_read(tmp_path):
    path = written(tmp_path, "text,Text,Note,note\nhi,you,1,2\n")
    assert [row.text for row in from_csv(path, columns={"text": "Text"})] == ["you"]


@pytest.mark.parametrize("name", ["shop.CSV", "shop.Tsv", "shop.JSONL"])
def test_the_ending_of_a_file_counts_in_any_case(tmp_path, name):
    text = '{"text": "hi"}\n' if name == "shop.JSONL" else "text\nhi\n"
    assert [row.text for row in from_file(written(tmp_path, text, name))] == ["hi"]


def test_a_misspelt_path_and_a_misspelt_column_are_told_the_nearest(tmp_path):
    path = written(tmp_path, "text\nhi\n")
    with pytest.raises(DataError, match=r"no file .*shpo.csv; did you mean shop.csv\?"):
        from_csv(tmp_path / "shpo.csv")
    with pytest.raises(UnknownName, match="did you mean 'intent'"):
        from_csv(path, columns={"intnet": "text"})
    with pytest.raises(UnknownName, match=r"unknown column of shop.csv 'tetx'; did you mean 'text'"):
        from_csv(path, columns={"text": "tetx"})
    with pytest.raises(DataError, match=r"latin.csv line 2 is not UTF-8"):
        (tmp_path / "latin.csv").write_bytes("text\ncaf\xe9\n".encode("latin-1"))
        from_csv(tmp_path / "latin.csv")
    with pytest.raises(DataError, match=r"end.* in .csv, .tsv, .jsonl"):
        from_file(tmp_path / "shop.xlsx")


def test_columns_that_are_not_read_are_pointed_out(tmp_path):
    with pytest.warns(UserWarning, match="not read are label, date; if one is the intent or the slots"):
        from_csv(written(tmp_path, "text,label,date\nhi,greet,1\n"))


# --- every method and evaluator ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder():
    return tiny.encoder(vocabulary=128)


def dialogues() -> list[Dialogue]:
    return list(from_csv(EXAMPLES / "dialogues.csv"))


@pytest.mark.parametrize("recipe", ["DSE", "DSE-dropout", "DSE 123-1", "SimCSE-unsup", "TOD-BERT", "WMDC"])
def test_own_dialogues_train_by_every_recipe_of_dialogues(encoder, recipe):
    data = [Conversation("mine", sentences_of(dialogue)) for dialogue in dialogues()]
    assert fit(recipe, encoder.clone(), data, STEP).result.steps == 1


@pytest.mark.parametrize("slots", ["annotated", "recognised"])
def test_own_utterances_train_tadse_with_their_slots_or_recognised_ones(encoder, slots):
    mine = list(from_csv(EXAMPLES / "utterances.csv"))
    filled = Augmentation(mine if slots == "annotated" else with_entities(mine), k=2)
    assert len(filled) > len(mine)
    assert fit("TaDSE", encoder.clone(), [filled], STEP).result.steps == 1


def test_own_dialogues_train_dialoguecse_and_ums(encoder):
    own, groups = encoder.clone(), build_groups(sessions(dialogues()), negatives=3)
    examples = matching_examples(own, groups, 3)
    assert train(own, MatchingGuidedObjective(own.dim, "I2", 0.1), examples, STEP).steps == 1
    selector = Selector(encoder.clone(), 40)
    lists = list(build_selection(dialogues(), 2, np.random.default_rng(0)))
    manipulated = manipulation_examples(selector.encoder, lists, 40)
    assert train(selector.encoder, ManipulationObjective(selector.heads, TASKS), manipulated, STEP).steps == 1


def own_rows(encoder, folder: Path) -> dict:
    """Rows of every evaluator, from own files alone."""
    mine = from_csv(EXAMPLES / "utterances.csv", held_out=0.25)
    parts = mine.filter(split="train"), mine.filter(split="test")
    talk = dialogues()
    lists = list(build_selection(talk, 4, np.random.default_rng(0)))
    said = [{"text": f"{word} it", "acts": [word]} for word in ("find", "book", "pay", "send")]
    acts = "\n".join(
        json.dumps({"id": i, "utterances": said[i % 2 :], "split": split})
        for i, split in enumerate(["train", "dev", "test"] * 4)
    )
    judged = {"utterances": "i want blue|it is red|x", "label": "no"}
    items = "\n".join(json.dumps(judged | {"label": ("no", "yes")[i % 2], "id": i}) for i in range(8))
    items = list(from_jsonl(written(folder, items, "judged.jsonl")))
    scored = from_csv(
        written(folder, "first,second,score\na table,a room,1\na seat,the seat,4\ntaxi,a train,2\n", "p.csv")
    )
    asked = from_csv(written(folder, "question,answer\n" + "".join(f"q {i},a {i}\n" for i in range(6)), "q.csv"))
    return {
        "knn": evaluation.evaluate_knn(encoder, *parts, dataset="mine"),
        "prototypes": evaluation.evaluate_prototypes(encoder, *parts, dataset="mine", seeds=range(2)),
        "scope": evaluation.evaluate_scope(encoder, *parts, dataset="mine", out_label="stock", seeds=range(2)),
        "candidates": evaluation.evaluate_candidates(encoder, lists, dataset="mine"),
        "selection": evaluation.selection_rows(
            cosine_scorer(encoder)(lists), [each.labels for each in lists], dataset="mine"
        ),
        "adversarial": evaluation.evaluate_adversarial(cosine_scorer(encoder), lists, dataset="mine"),
        "blocks": evaluation.evaluate_blocks(encoder, asked, dataset="mine", size=3),
        "actions": evaluation.evaluate_actions(encoder, from_jsonl(written(folder, acts, "a.jsonl")), dataset="mine"),
        "inference": evaluation.evaluate_inference(encoder, items, items, items, dataset="mine"),
        "retrieval": evaluation.evaluate_retrieval(
            encoder, build_retrieval([(r.text, r.intent) for r in mine], positives=3, pool=8), dataset="mine"
        ),
        "similarity": evaluation.evaluate_similarity(encoder, scored, dataset="mine"),
    } | {
        f"own {records.table.kind}": evaluate_own(encoder, records)
        for records in (mine, scored, asked, from_csv(EXAMPLES / "dialogues.csv"))
    }


def test_own_files_go_through_every_evaluator(encoder, tmp_path):
    for name, rows in own_rows(encoder, tmp_path).items():
        assert len(rows) and np.isfinite(rows["value"]).all(), name
    assert labelled_utterances(dialogues())[0] == ("where is my parcel?", "track")


def test_every_method_makes_examples_of_own_dialogues():
    counts = count_examples(from_csv(EXAMPLES / "dialogues.csv"))
    assert [name.partition(":")[0] for name in counts] == ["SimCSE", "DSE", "DialogueCSE", "TaDSE", "WMDC", "UMS"]
    assert counts["UMS: contexts with a right and a wrong response"] == 6 * 6 and min(counts.values()) > 30


def test_an_evaluation_says_what_a_file_lacks(encoder, tmp_path):
    with pytest.raises(DataError, match="should have the splits train, test, but has train"):
        evaluate_own(encoder, from_csv(EXAMPLES / "utterances.csv"))
    with pytest.raises(DataError, match="fewer than two intents"):
        evaluate_own(encoder, from_csv(written(tmp_path, "text,split\na,train\nb,test\n")))
    with pytest.raises(DataError, match="training takes dialogues or utterances"):
        conversations_of(from_csv(written(tmp_path, "question,answer\na,b\n", "q.csv")))


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(encoder, tmp_path, monkeypatch) -> Path:
    """A saved tiny encoder; the bundled test sets, by which a trained encoder is scored, are one small one."""
    mine = from_csv(EXAMPLES / "utterances.csv", held_out=0.25)
    monkeypatch.setattr(bundled, "intent_sets", lambda: {"Bank77": mine})
    return encoder.save(tmp_path / "tiny")


@pytest.mark.parametrize(("recipe", "file"), [("DSE", "dialogues"), ("WMDC", "dialogues"), ("TaDSE", "utterances")])
def test_dialnb_train_takes_a_file_of_ones_own(folder, tmp_path, recipe, file):
    small = ("--set", "batch_size=8", "--set", "max_steps=1", "--encoder", str(folder), "-o", str(tmp_path / "out"))
    assert main(["train", recipe, "--corpus", str(EXAMPLES / f"{file}.csv"), *small]) == 0
    assert f"| {file}.csv | " in (tmp_path / "out" / "README.md").read_text()


def test_dialnb_evaluate_takes_a_file_of_ones_own(folder, tmp_path, capsys):
    assert main(["evaluate", str(folder), "--data", str(EXAMPLES / "utterances.csv"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "a fifth of every intent is held out" in shown.err
    assert {json.loads(line)["task"] for line in shown.out.splitlines() if line} == {"intent"}
    renamed = (EXAMPLES / "dialogues.csv").read_text().replace("text", "said", 1)
    path = written(tmp_path, renamed)
    assert main(["evaluate", str(folder), "--data", str(path), "--column", "text=said"]) == 0
    assert "R10@1" in capsys.readouterr().out
    assert main(["evaluate", str(folder), "--data", str(path)]) == 1
    assert "shop.csv has not the columns" in capsys.readouterr().err
