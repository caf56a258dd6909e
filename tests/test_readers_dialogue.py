"""Dialogue readers: each format on a small hand-made file, and the published counts on the mirror."""

from __future__ import annotations

import json
from collections import Counter
from fnmatch import fnmatchcase

import pytest

from dialnb.data import load
from dialnb.data.readers import Files, get_reader
from dialnb.data.records import Slot
from dialnb.errors import DataError


class Stand:
    """Stands in for a store: files by key, archives as dictionaries of members."""

    def __init__(self, folder, files):
        self.folder, self.files = folder, files

    def path(self, source, key):
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.files[key])
        return path

    def paths(self, source, pattern="*"):
        return {key: self.path(source, key) for key in sorted(self.files) if fnmatchcase(key, pattern)}

    def members(self, source, key, pattern="*"):
        return {name: data for name, data in sorted(self.files[key].items()) if fnmatchcase(name, pattern)}


@pytest.fixture
def read(tmp_path):
    """read(dataset, files, variant) -> (dialogues, skipped counts)."""

    def run(dataset, files, variant=None):
        rows = Files(Stand(tmp_path, files), dataset)
        return list(get_reader(dataset)(rows, variant)), dict(rows.skipped)

    return run


def dump(value) -> bytes:
    return json.dumps(value).encode()


def said(dialogue):
    return [(utterance.speaker, utterance.text) for utterance in dialogue.utterances]


# -- schema-guided ------------------------------------------------------------------------


def sgd_turn(speaker, text, *frames):
    return {"speaker": speaker, "utterance": text, "frames": list(frames)}


def sgd_frame(intent=None, acts=None, slots=()):
    frame = {"service": "Hotels_1", "slots": [{"slot": s, "start": a, "exclusive_end": b} for s, a, b in slots]}
    frame |= {"state": {"active_intent": intent}} if intent else {}
    return frame | ({"actions": [{"act": act} for act in acts]} if acts is not None else {})


def test_sgd_keeps_acts_slot_spans_and_the_newly_active_intent(read):
    turns = [
        sgd_turn("USER", "A room in Rome", sgd_frame("SearchHotel", ["INFORM", "INFORM"], [("city", 10, 14)])),
        sgd_turn("SYSTEM", "Hotel X?", sgd_frame(acts=["OFFER"])),
        sgd_turn(
            "USER", "Yes, and a taxi", sgd_frame("SearchHotel", ["SELECT"]), sgd_frame("GetRide", ["INFORM_INTENT"])
        ),
        sgd_turn("USER", "Thanks", sgd_frame("NONE", ["THANK_YOU"])),
    ]
    files = {"dev/dialogues_001.json": dump([{"dialogue_id": "1_0", "services": ["Hotels_1"], "turns": turns}])}
    (dialogue,), skipped = read("SGD", files)
    assert (dialogue.id, dialogue.domains, dialogue.split) == ("1_0", ("Hotels_1",), "dev")
    assert dialogue.utterances[0].acts == ("INFORM",)
    assert dialogue.utterances[0].slots == (Slot("city", "Rome", 10, 14),)
    assert [utterance.intent for utterance in dialogue.utterances] == ["SearchHotel", "", "GetRide", ""]
    assert dialogue.utterances[2].acts == ("SELECT", "INFORM_INTENT")
    assert not skipped


def test_sgd_counts_user_turns_of_older_files_that_have_no_acts(read):
    turns = [sgd_turn("USER", "Hi", sgd_frame("NONE")), sgd_turn("SYSTEM", "Hello", sgd_frame(acts=["GREET"]))]
    files = {"test/dialogues_001.json": dump([{"dialogue_id": "1", "services": [], "turns": turns}])}
    (dialogue,), skipped = read("SGD", files)
    assert len(dialogue.utterances) == 2
    assert sum(skipped.values()) == 1


def test_a_malformed_dialogue_names_file_and_index(read):
    good = {"dialogue_id": "1", "services": [], "turns": []}
    with pytest.raises(DataError, match=r"train/dialogues_001\.json dialogue 1: no field 'turns'"):
        read("SGD", {"train/dialogues_001.json": dump([good, {"dialogue_id": "2"}])})


def gsim_file(**turn):
    return dump([{"dialogue_id": "m1", "turns": [turn]}])


def test_gsim_turns_token_spans_into_character_spans(read):
    spoken = {"text": "buy 3 tickets .", "tokens": ["buy", "3", "tickets", "."]}
    spoken["slots"] = [{"slot": "num", "start": 1, "exclusive_end": 3}]
    original = gsim_file(user_utterance=spoken, user_acts=[{"type": "INFORM"}] * 2, user_intents=["BUY"])
    files = {f"{corpus}/{split}.json": original for corpus in ("sim-M", "sim-R") for split in ("train", "dev", "test")}
    dialogues, skipped = read("GSIM", files, "official")
    assert len(dialogues) == 6 and not skipped
    (utterance,) = dialogues[0].utterances
    assert (utterance.acts, utterance.intent) == (("INFORM",), "BUY")
    assert utterance.slots == (Slot("num", "3 tickets", 4, 13),)


def test_gsim_copies_drop_only_the_missing_opening_line_and_count_missing_acts(read):
    turn = {"user_utterance": "hi", "system_utterance": "", "turn_slots": {"restaurant-meal": "lunch"}}
    simple = dump([{"dialogue_idx": "r1", "dialogue": [turn, turn]}])
    original = gsim_file(user_utterance={"text": "hi", "tokens": ["hi"], "slots": []}, user_acts=[])
    files = {f"sim-M/{split}.json": original for split in ("train", "dev", "test")} | {"sim-R/dev.json": original}
    files |= {f"Examples/bots/TaskBot/sim-R_dataset/{split}_dials.json": simple for split in ("train", "test")}
    dialogues, skipped = read("GSIM", files)
    assert said(dialogues[1]) == [("user", "hi"), ("system", ""), ("user", "hi")]
    assert dialogues[1].utterances[0].slots == (Slot("meal", "lunch"),)
    assert Counter(dialogue.split for dialogue in dialogues) == {"train": 2, "dev": 2, "test": 2}
    assert sum(skipped.values()) == 2


# -- wizard of Oz ------------------------------------------------------------------------


def woz_turn(index, system, user, label=(), acts=()):
    return {
        "turn_idx": index,
        "system_transcript": system,
        "transcript": user,
        "turn_label": list(label),
        "system_acts": list(acts),
    }


def test_woz_opens_with_the_user(read):
    turns = [
        woz_turn(0, "", "Thai food?", [["food", "thai"]]),
        woz_turn(1, "Where?", "North. Phone?", [["area", "north"], ["request", "phone"]], ["area"]),
    ]
    content = dump([{"dialogue_idx": 7, "dialogue": turns}])
    files = {f"data/woz/woz_{name}_en.json": content for name in ("train", "validate", "test")}
    dialogues, _ = read("WOZ2.0", files)
    assert [(dialogue.id, dialogue.split) for dialogue in dialogues][1] == ("dev-7", "dev")
    assert said(dialogues[0]) == [("user", "Thai food?"), ("system", "Where?"), ("user", "North. Phone?")]
    assert [utterance.acts for utterance in dialogues[0].utterances] == [
        ("inform",),
        ("request",),
        ("inform", "request"),
    ]
    assert dialogues[0].utterances[2].slots == (Slot("area", "north"),)


def test_camrest_skips_the_comment_lines_and_keeps_new_constraints_only(read):
    def turn(*slots):
        labels = [{"act": act, "slots": [[name, value]]} for act, name, value in slots]
        return {"usr": {"transcript": "u", "slu": labels}, "sys": {"sent": "s", "DA": ["food"]}}

    first, food = ("inform", "area", "south"), ("inform", "food", "thai")
    dial = [turn(first), turn(first, food), turn(first, food, ("request", "slot", "phone"))]
    content = b"# a comment\n###\n" + dump([{"dialogue_id": 3, "dial": dial}])
    (dialogue,), _ = read("CamRest676", {"data/CamRest676.json": content})
    assert [u.slots for u in dialogue.utterances[::2]] == [(Slot("area", "south"),), (Slot("food", "thai"),), ()]
    assert [u.acts for u in dialogue.utterances[::2]] == [("inform",), ("inform",), ("request",)]
    assert dialogue.utterances[1].acts == ("request",)


def test_multiwoz_copies_place_a_slot_where_its_words_are(read):
    acts = {"Taxi-Inform": [["Dest", "Pizza Hut"], ["Leave", "5"]], "Taxi-Request": [["Car", "?"]]}
    spans = [["Taxi-Inform", "Dest", "pizza hut", 2, 3], ["Taxi-Inform", "Leave", "5", 0, 0]]
    turn = {"text": "to the Pizza Hut , at five", "dialog_act": acts, "span_info": spans}
    goal = {"taxi": {"info": {}}, "police": {}, "message": ["x"]}
    archive = {"val.json": dump({"SNG01": {"goal": goal, "log": [turn, turn]}})}
    files = {"data/multiwoz/val.json.zip": archive, "data/multiwoz/test.json.zip": {"test.json": b"{}"}}
    (dialogue,), _ = read("MultiWOZ", files)
    assert (dialogue.id, dialogue.domains, dialogue.split) == ("SNG01", ("taxi",), "dev")
    assert [utterance.speaker for utterance in dialogue.utterances] == ["user", "system"]
    assert dialogue.utterances[0].acts == ("Taxi-Inform", "Taxi-Request")
    assert dialogue.utterances[0].slots == (Slot("Dest", "Pizza Hut", 7, 16), Slot("Leave", "5"))


# -- DSTC2 ------------------------------------------------------------------------


def session(system, user):
    log = {"turns": [{"output": {"transcript": system, "dialog-acts": [{"act": "welcomemsg", "slots": []}]}}]}
    semantics = {
        "json": [{"act": "inform", "slots": [["food", "thai"]]}, {"act": "request", "slots": [["slot", "phone"]]}]
    }
    return log, {"turns": [{"transcription": user, "semantics": semantics}]}


def test_dstc2_official_reads_sessions_by_the_split_lists(read):
    log, label = session("Hello", "thai food")
    folder = {
        f"data/Mar13/{name}/{part}.json": dump(data)
        for name in "abc"
        for part, data in (("log", log), ("label", label))
    }
    traindev = folder | {"scripts/config/dstc2_train.flist": b"Mar13/a\n", "scripts/config/dstc2_dev.flist": b"Mar13/b"}
    files = {
        "dstc2_traindev.tar.gz": traindev,
        "dstc2_test.tar.gz": folder | {"scripts/dstc2_test.flist": b"Mar13/c\n"},
    }
    dialogues, _ = read("DSTC2", files, "official")
    assert [(dialogue.id, dialogue.split) for dialogue in dialogues] == [("a", "train"), ("b", "dev"), ("c", "test")]
    system, user = dialogues[0].utterances
    assert (system.text, system.acts, user.acts) == ("Hello", ("welcomemsg",), ("inform", "request"))
    assert user.slots == (Slot("food", "thai"),)


def test_dstc2_copies_look_acts_up_by_text_and_count_what_is_not_found(read):
    turns = [woz_turn(0, "Hello", ""), woz_turn(1, "What?", "north", [["area", "north"]]), woz_turn(2, "Hm", "bye")]
    raw = [woz_turn(0, "Hello", "thai food")]
    texts = {
        "dstc2-clean/dstc2_train_en.json": dump([{"dialogue": turns}, {"dialogue": raw}]),
        "dstc2-clean/dstc2_validate_en.json": b"[]",
        "dstc2-clean/dstc2_test_en.json": dump([{"dialogue": [*turns[:2], woz_turn(2, "What?", "Thai food ")]}]),
    }
    log, label = session("Hello", "thai food")
    pairs = b"welcomemsg() \nwelcomemsg() \nHELLO\n\nrequest(area;) inform(x=y;) \nrequest(area)\nWhat?\n\n"
    files = {
        "storage/dstc2-clean.zip": texts,
        "src/data/train_data": pairs,
        "src/data/valid_data": b"",
        "src/data/test_data": b"",
        "data/dstc2_original_split/data.dstc2.train.json": dump(
            [{"session-id": "v1", "turns": turns}, {"session-id": "v2", "turns": raw}]
        ),
        "data/dstc2_original_split/data.dstc2.dev.json": b"[]",
        "rasa/data/file/Mar13_S0A0/v2/log.json": dump(log),
        "rasa/data/file/Mar13_S0A0/v2/label.json": dump(label),
    }
    dialogues, skipped = read("DSTC2", files)
    assert [dialogue.id for dialogue in dialogues] == ["v1", "v2", "test-0"]
    assert said(dialogues[0])[1] == ("user", "")
    assert [u.acts for u in dialogues[0].utterances[::2]] == [("welcomemsg",), ("request", "inform"), ()]
    assert dialogues[0].utterances[3].slots == (Slot("area", "north"),)
    assert dialogues[1].utterances[1].acts == ("inform", "request")
    assert dialogues[2].utterances[5].acts == ("inform", "request"), "the words of a user whose acts are known"
    assert sorted(skipped.values()) == [1, 5]


# -- unified format ------------------------------------------------------------------------


def test_kvret_copy_keeps_acts_and_places(read):
    acts = {
        "binary": [{"intent": "request", "slot": "address"}],
        "categorical": [],
        "non-categorical": [{"intent": "inform", "slot": "distance", "value": "near", "start": 0, "end": 4}],
    }
    turns = [{"speaker": "user", "utterance": "near?", "dialogue_acts": acts}]
    item = {"dialogue_id": "kvret-0", "data_split": "validation", "domains": ["navigate"], "turns": turns}
    files = {"data/unified_datasets/kvret/data.zip": {"data/dialogues.json": dump([item])}}
    (dialogue,), _ = read("KVRET", files)
    assert (dialogue.split, dialogue.domains) == ("dev", ("navigate",))
    assert dialogue.utterances[0].acts == ("request", "inform")
    assert dialogue.utterances[0].slots == (Slot("distance", "near", 0, 4),)


# -- Taskmaster ------------------------------------------------------------------------


def test_taskmaster4_keeps_segments(read):
    segment = {"start_index": 3, "end_index": 7, "text": "Rome", "annotations": [{"name": "city"}, {"name": "city"}]}
    turns = [
        {"index": 0, "speaker": "USER", "text": "to Rome", "segments": [segment]},
        {"index": 1, "speaker": "ASSISTANT", "text": "ok"},
    ]
    item = {"conversation_id": "a", "vertical": "Coffee", "utterances": turns}
    files = {f"TM-4-2024/data/data_0{number}.json": b"[]" for number in range(1, 8)}
    (dialogue,), _ = read("Taskmaster", files | {"TM-4-2024/data/data_00.json": dump([item])}, "tm4")
    assert (dialogue.id, dialogue.split, dialogue.domains) == ("a", "train", ("coffee",))
    assert dialogue.utterances[0].slots == (Slot("city", "Rome", 3, 7),)


def test_delexicalised_taskmaster_keeps_placeholders_as_slots(read):
    text = b"## dlg-1\n   - Hi there\n   - How can I help?\n* at _time.start_ please\n\n## dlg-2\n* hello\n"
    files = {
        f"taskmaster-1/{name}-{split}.md": text
        for name in ("self-dialogs", "woz-dialogs")
        for split in ("train", "test")
    }
    dialogues, _ = read("Taskmaster", files)
    assert [dialogue.id for dialogue in dialogues[:2]] == ["dlg-1", "dlg-2"]
    assert [speaker for speaker, _ in said(dialogues[0])] == ["system", "system", "user"]
    assert dialogues[0].utterances[2].slots == (Slot("time.start", "_time.start_", 3, 15),)
    files["taskmaster-1/self-dialogs-train.md"] = b"## dlg-1\nwhat is this\n"
    with pytest.raises(DataError, match=r"self-dialogs-train\.md line 2"):
        read("Taskmaster", files)


def test_a_ticket_talk_row_is_put_back_in_order_without_service_calls(read):
    calls = "<PN>find_movies<PAN>location<PAV>nearby<PR>find_movies<PRAN>name.movie<PRAV>Emma"
    rows = [
        ["<U>Hi", "[A]Hello", "d1"],
        [f"<PR>find_movies<PRAN>name.movie<PRAV>Mulan<C><S><U>Hi<A>Hello<U>Films?{calls}", "[A]Mulan", "d1"],
        ['"<U>A ""good"" one<C><U>Hi"', "[PN]find_movies[PAN]location[PAV]here", "d2"],
    ]
    text = "\r\n".join("\t".join(cells) for cells in rows) + "\r\n"
    dialogues, skipped = read("Taskmaster", {"TM-3-2020/splits/train/train-bc.tsv": text.encode()}, "tm3-shard")
    assert said(dialogues[0]) == [("user", "Hi"), ("system", "Hello"), ("user", "Films?"), ("system", "Mulan")]
    assert said(dialogues[1]) == [("user", "Hi"), ("user", 'A "good" one')]
    assert sum(skipped.values()) == 1


# -- crowd ------------------------------------------------------------------------

MDC_HEADER = "session.ID\tMessage.ID\tMessage.Timestamp\tMessage.From\tMessage.Text\tDialog-Acts\n"


def test_mdc_groups_messages_and_reads_every_act_cell(read):
    rows = (
        '1\t1\tt\tuser\t"A cab, ""now"""\tgreeting(greeting=hi)\trequest(taxi;city=New York;state=NY)\t\n'
        "1\t2\tt\tagent\tWhere from?\trequest(pickup_location) \t\t\n"
        "2\t1\tt\tuser\tNo\tDeny()\n"
    )
    files = {f"data/{domain}_all.tsv": ("\ufeff" + MDC_HEADER + rows).encode() for domain in ("movie", "taxi")}
    dialogues, _ = read("MDC", files)
    assert [dialogue.id for dialogue in dialogues[::2]] == ["movie-1", "taxi-1"]
    first, second = dialogues[0].utterances
    assert (first.speaker, first.text) == ("user", 'A cab, "now"')
    assert (first.acts, first.intent) == (("greeting", "request"), "greeting")
    assert first.slots == (Slot("greeting", "hi"), Slot("city", "New York"), Slot("state", "NY"))
    assert (second.speaker, second.acts, second.slots) == ("system", ("request",), ())
    assert dialogues[1].utterances[0].acts == ("deny",)


@pytest.mark.parametrize("bad", ["user\n", "robot\thi\tinform()\n", "user\thi\tno act\n", 'user\t"hi\tinform()\n'])
def test_mdc_names_the_line_of_a_malformed_row(read, bad):
    good = "1\t1\tt\tuser\thi\tgreeting()\n"
    with pytest.raises(DataError, match=r"movie_all\.tsv line 3"):
        read("MDC", {"data/movie_all.tsv": (MDC_HEADER + good + "1\t1\tt\t" + bad).encode(), "data/taxi_all.tsv": b""})


def test_metalwoz_bot_speaks_first(read):
    line = dump({"id": "a", "domain": "ALARM_SET", "turns": ["Hello", "wake me"]}) + b"\n"
    (dialogue,), _ = read("MetaLWOZ", {"data/dialogues/ALARM_SET.txt": line})
    assert said(dialogue) == [("system", "Hello"), ("user", "wake me")]


def test_frames_lays_references_flat_and_takes_the_intent(read):
    reference = {"key": "ref", "val": [{"frame": 1, "annotations": []}]}
    book, city = {"key": "intent", "val": "book"}, {"key": "dst_city", "val": "Rome"}
    labels = {"acts": [{"name": "inform", "args": [book, reference]}, {"name": "switch_frame", "args": []}]}
    labels["acts_without_refs"] = [{"name": "inform", "args": [book, city]}]
    plain = {"acts": [{"name": "no_result", "args": [reference, {"key": "dst_city"}]}]}
    turns = [{"author": "user", "text": "u", "labels": labels}, {"author": "wizard", "text": "w", "labels": plain}]
    archive = {"frames.json": dump([{"id": "f", "turns": turns}])}
    (dialogue,), _ = read("Frames", {"data/unified_datasets/frames/original_data.zip": archive})
    user, wizard = dialogue.utterances
    assert (user.acts, user.slots, user.intent) == (("inform", "switch_frame"), (Slot("dst_city", "Rome"),), "book")
    assert (wizard.speaker, wizard.acts, wizard.slots) == ("system", ("no_result",), ())


def test_star_is_what_user_and_wizard_say(read):
    events = [
        {"Agent": "UserGuide", "Action": "instruct", "Text": "be brief"},
        {"Agent": "User", "Action": "utter", "Text": "Hi"},
        {"Agent": "Wizard", "Action": "request_suggestions", "Text": "Hello?"},
        {"Agent": "Wizard", "Action": "pick_suggestion", "Text": "Your name?", "ActionLabel": "ask_name"},
        {"Agent": "Wizard", "Action": "utter", "Text": "Please.", "ActionLabel": None},
        {"Agent": "User", "Action": "complete"},
    ]
    item = {"DialogueID": 5, "Scenario": {"Domains": ["bank", None]}, "Events": events}
    archive = {"dialogues/5.json": dump(item), "dialogues/6.json": dump(item | {"Events": events[:1]})}
    (dialogue,), skipped = read("STAR", {"STAR.tar.gz": archive})
    assert (dialogue.id, dialogue.domains) == ("5", ("bank",))
    assert said(dialogue) == [("user", "Hi"), ("system", "Your name?"), ("system", "Please.")]
    assert [utterance.acts for utterance in dialogue.utterances] == [(), ("ask_name",), ()]
    assert sum(skipped.values()) == 1


def test_topical_chat_has_two_kinds_of_dev_and_test(read):
    content = dump({"t_1": {"content": [{"agent": "agent_1", "message": "Hi"}]}})
    names = ("valid_freq", "valid_rare", "test_freq", "test_rare")
    dialogues, _ = read("TopicalChat", {f"conversations/{name}.json": content for name in names})
    assert [dialogue.split for dialogue in dialogues] == ["dev_freq", "dev_rare", "test_freq", "test_rare"]


def test_self_dialogue_puts_sentences_in_the_order_of_their_numbers(read):
    columns = sorted(f"Answer.sentence{number}" for number in range(1, 21))
    header = ",".join(["AssignmentId", *columns])
    cells = ",".join(["A1", *(f'"s{column[15:]}, and"' for column in columns)])
    (dialogue,), _ = read("Self-dialogue", {"corpus/movies/x.csv": f"{header}\n{cells}\n".encode()})
    assert [text for _, text in said(dialogue)] == [f"s{number}, and" for number in range(1, 21)]
    assert dialogue.domains == ("movies",)
    with pytest.raises(DataError, match=r"x\.csv line 2: no field 'Answer\.sentence1'"):
        read("Self-dialogue", {"corpus/movies/x.csv": b"AssignmentId\nA1\n"})


# -- the published counts ------------------------------------------------------------------------

COUNTS = {
    # dataset, variant: dialogues per split, utterances
    ("MetaLWOZ", None): ({"train": 37_884}, 432_036),
    ("Frames", None): ({"train": 1_369}, 19_986),
    ("KVRET", None): ({"train": 2_424, "dev": 302, "test": 304}, 15_913),
    ("MDC", None): ({"train": 5_984}, 44_967),
    ("MultiWOZ", None): ({"dev": 999, "test": 1_000}, 29_474),
    ("Taskmaster", "tm1-delexicalised"): ({"train": 1_600, "test": 400}, 45_992),
    ("Taskmaster", "tm3-shard"): ({"train": 1_462}, 15_821),
    ("Taskmaster", "tm4"): ({"train": 3_710}, 13_915),
    ("WOZ2.0", None): ({"train": 600, "dev": 200, "test": 400}, 2 * 5_012 - 1_200),
    ("CamRest676", None): ({"train": 676}, 2 * 2_744),
    ("DSTC2", None): ({"train": 1_612, "dev": 506, "test": 1_117}, 2 * (11_677 + 3_934 + 9_890)),
    ("GSIM", None): ({"train": 1_500, "dev": 469, "test": 1_039}, 27_120),
    ("DailyDialog", None): ({"train": 11_118, "dev": 1_000, "test": 1_000}, 102_979),
    ("TopicalChat", None): ({f"{s}_{r}": 539 for s in ("dev", "test") for r in ("freq", "rare")}, 46_903),
    ("Self-dialogue", None): ({"train": 4_136}, 82_720),
    ("STAR", None): ({"train": 6_652 - 447}, 108_137),
}


@pytest.mark.mirror
@pytest.mark.parametrize(("name", "variant"), COUNTS, ids=lambda value: value or "")
def test_the_published_counts_come_out(mirror_store, name, variant):
    dialogues, utterances = COUNTS[name, variant]
    dataset = load(name, variant, store=mirror_store)
    assert Counter(dataset.column("split")) == dialogues
    assert len(dataset.texts()) == utterances
    assert len(set(dataset.column("id"))) == len(dataset)
    slots = ((u.text, slot) for dialogue in dataset for u in dialogue.utterances for slot in u.slots if slot.start >= 0)
    assert all(text[slot.start : slot.end] == slot.value for text, slot in slots)


@pytest.mark.mirror
@pytest.mark.slow
def test_sgd_is_complete(mirror_store):
    dataset = load("SGD", store=mirror_store)
    assert Counter(dataset.column("split")) == {"train": 16_142, "dev": 2_482, "test": 4_201}
    assert len(dataset.texts()) == 463_284
    assert len(set(dataset.column("utterances.acts"))) == 18
    assert set(dataset.column("utterances.speaker")) == {"user", "system"}


@pytest.mark.mirror
def test_exchanges_and_domains_are_those_of_the_papers_tables(mirror_store):
    assert load("WOZ2.0", store=mirror_store).column("utterances.speaker").count("user") == 5_012
    assert load("CamRest676", store=mirror_store).column("utterances.speaker").count("user") == 2_744
    assert len(set(load("MetaLWOZ", store=mirror_store).column("domains"))) == 47
    assert len(set(load("MDC", store=mirror_store).column("utterances.intent"))) == 11
    assert len(set(load("STAR", store=mirror_store).column("domains"))) == 13


def diaeval_samples(dialogues):
    """DiaEval's rule: every utterance from the third on is a sample."""
    return sum(max(0, len(dialogue.utterances) - 2) for dialogue in dialogues)


@pytest.mark.mirror
def test_diaeval_sample_counts_come_out(mirror_store):
    dstc2 = load("DSTC2", store=mirror_store)
    assert [diaeval_samples(dstc2.filter(split=s)) for s in ("train", "dev", "test")] == [20_130, 6_856, 17_546]
    assert diaeval_samples(load("GSIM", split="dev", store=mirror_store)) == 2_837


@pytest.mark.mirror
def test_dstc2_acts_are_found_for_most_system_turns_and_the_rest_is_counted(mirror_store):
    dataset = load("DSTC2", store=mirror_store)
    found = {}
    for split in ("train", "dev", "test"):
        system = [u for dialogue in dataset.filter(split=split) for u in dialogue.utterances if u.speaker == "system"]
        found[split] = sum(bool(utterance.acts) for utterance in system) / len(system)
    assert found["train"] > 0.959 and found["dev"] > 0.952
    assert found["test"] == pytest.approx(0.976, abs=0.001)
    users = [u for dialogue in dataset for u in dialogue.utterances if u.speaker == "user"]
    unlabelled = {reason: count for reason, count in dataset.skipped.items() if reason.startswith("user acts")}
    assert list(unlabelled.values()) == [12_223], "of 24,452 outside of the sessions that are published whole"
    assert sum(bool(utterance.acts) for utterance in users) == 13_203


@pytest.mark.mirror
def test_gsim_acts_are_those_of_the_simulator(mirror_store):
    dataset = load("GSIM", split="dev", store=mirror_store)
    system = {act for dialogue in dataset for u in dialogue.utterances if u.speaker == "system" for act in u.acts}
    assert system == {"CONFIRM", "NEGATE", "NOTIFY_FAILURE", "NOTIFY_SUCCESS", "OFFER", "REQUEST", "SELECT"}
