"""The runs that the repository keeps: whole, small, judged again as they say, and told in the digest."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest

from dialnb.claims import load_claims
from dialnb.files import table_at
from dialnb.report.gather import gather, recorded_runs
from tools.digest import digest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def groups():
    return gather(recorded_runs())


@pytest.fixture(scope="module")
def judged(groups):
    """The verdicts of every group by its name, judged anew: a minute's work, done once."""
    return {group.name: group.judge().frame.set_index("id") for group in groups if group.runs}


@pytest.fixture(scope="module")
def recorded(groups, judged):
    """The same by paper."""
    return {group.slug: judged[group.name] for group in groups if group.runs}


PLACE = re.compile(r"/(?<![\w.]/)(?:home|root|tmp|opt|Users)/\w")  # slash first: quick to look for


@pytest.mark.parametrize("run", sorted(ROOT.glob("papers/*/results/*/run.json")), ids=lambda path: path.parts[-4])
def test_recorded_runs_are_whole_small_and_name_no_machine(run, groups, judged):
    said = json.loads(run.read_text(encoding="utf-8"))
    assert said["status"] == "done" and not said["code"]["dirty"] and not said["set_by_hand"].keys() - {"seed"}
    assert table_at(run.parent) and (run.parent / "claims.json").is_file()
    notebook = run.parent / "notebook.ipynb"
    executed = notebook.read_text(encoding="utf-8")
    assert notebook.stat().st_size < 3_000_000 and '"image/png"' in executed
    assert not any("papermill" in cell["metadata"] for cell in json.loads(executed)["cells"])
    crate = json.loads((run.parent / "ro-crate-metadata.json").read_text(encoding="utf-8"))["@graph"]
    sizes = {run.parent / file["@id"]: int(file["contentSize"]) for file in crate if "contentSize" in file}
    assert sizes == {path: path.stat().st_size for path in sizes}
    (group,) = [group for group in groups if run.parent in [kept.folder for kept in group.runs]]
    told = {claim["id"]: claim["verdict"] for claim in json.loads((run.parent / "claims.json").read_text("utf-8"))}
    assert judged[group.name]["verdict"].to_dict() == told, "the report judges as the run did"
    for path in run.parent.rglob("*.*"):
        if path.suffix in (".json", ".ipynb", ".csv", ".md", ".xz"):
            content = path.read_bytes()
            text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
            assert not PLACE.search(text), f"{path} names a place on a machine"


@pytest.mark.parametrize("run", sorted(ROOT.glob("papers/*/trial/*/run.json")), ids=lambda path: path.parts[-4])
def test_recorded_trials_ran_to_their_end_and_tell_what_the_whole_would_take(run):
    text = run.read_text(encoding="utf-8")
    said, times = json.loads(text), (run.parent / "training-times.csv").read_text(encoding="utf-8")
    assert said["status"] == "done" and not said["code"]["dirty"] and said["set_by_hand"]
    assert "projected hours" in times.splitlines()[0] and len(times.splitlines()) > 1
    assert not PLACE.search(text), f"{run} names a place on a machine"


def test_the_digest_is_that_of_the_recorded_runs(groups):
    said = (ROOT / "papers" / "REPORT.md").read_text(encoding="utf-8")
    assert said == digest(groups, ROOT / "papers"), "stale: python -m tools.record writes it"


def test_no_difference_between_trained_models_is_decided_on_fewer_than_three_trainings(recorded):
    for slug, frame in recorded.items():
        named = {one.id: one for one in load_claims(slug)}
        decided = frame[frame.verdict.isin(["holds", "fails"]) & frame.train_seeds.between(1, 2)]
        assert all(named[one].one_model for one in decided.index), slug


def test_of_ums_each_selector_is_judged_where_it_is_above_words_alone(recorded):
    frame = recorded["ums"]
    assert (frame.loc[["related-not-next", "baselines-collapse"], "verdict"] == "holds").all()
    floor = "E-commerce (under-trained (UMS_BERT 0.182, not surely above TF-IDF 0.110))"
    assert floor in frame.loc["corpora", "reason"]


def test_every_recorded_verdict_says_what_it_rests_on(recorded):
    for frame in recorded.values():
        judged = frame[frame.verdict.isin(["holds", "fails", "undecided"])]
        assert judged[["train_seeds", "unit", "floor", "paper", "strength"]].notna().all(axis=None)
        assert judged.strength.str.fullmatch("[●○]{3}").all()
