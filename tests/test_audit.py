"""The audit: what it counts, and that it sees what it is there to see."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dialnb.errors import DataError
from tools.audit import __main__ as audit
from tools.audit import reports
from tools.audit.made import DAMAGES, SECRET, make_run
from tools.audit.mirrors import LIES, lying_mirrors
from tools.audit.outcomes import AGAIN, CARD, OUTCOMES, REFUSED, SOUND, WRONG, Tried, tried, tried_command


def raises(error: BaseException) -> None:
    raise error


def test_an_error_of_ours_is_a_sentence_and_any_other_is_wrong():
    assert tried("a", lambda: raises(DataError("it is cut"))) == Tried("a", REFUSED, "it is cut")
    assert tried("b", lambda: raises(KeyError("x"))) == Tried("b", WRONG, "KeyError: 'x'")
    assert tried("c", lambda: None).outcome == SOUND
    assert tried("d", lambda: 1, lambda value: SOUND if value == 2 else WRONG).outcome == WRONG
    assert tried("e", lambda: raises(DataError("two\nlines"))).outcome == WRONG


def test_a_command_is_wrong_if_it_raises_or_says_more_than_a_sentence(monkeypatch, tmp_path):
    assert tried_command("a", "compare", tmp_path, tmp_path).outcome == REFUSED
    assert tried_command("b", "list", "--out", tmp_path).outcome == SOUND
    monkeypatch.setattr("tools.audit.outcomes.main", lambda _: raises(KeyError("x")))
    assert tried_command("c", "list").outcome == WRONG
    monkeypatch.setattr("tools.audit.outcomes.main", lambda _: print("dialnb: a\nb", file=sys.stderr) or 1)
    assert tried_command("d", "list").outcome == WRONG
    monkeypatch.setattr("tools.audit.outcomes.main", lambda _: print("\x1b[2J") or 0)
    assert tried_command("e", "list").outcome == WRONG


def test_the_table_counts_each_family_and_names_what_is_wrong(monkeypatch, capsys):
    def family(folder):
        """Things that break."""
        assert not list(folder.iterdir())
        return iter(
            [Tried("one", REFUSED), Tried("two", CARD), Tried("three", WRONG, "KeyError"), Tried("four", AGAIN)]
        )

    monkeypatch.setattr(audit, "FAMILIES", (family,))
    assert audit.audit() == 1
    said = capsys.readouterr()
    assert "| Things that break | 4 | 1 | 1 | 1 | – | 1 |" in said.out
    assert "Things that break: three: KeyError" in said.err
    assert audit.audit(["other"]) == 0


def test_a_page_that_acts_and_a_file_from_elsewhere_are_seen(tmp_path):
    for number, html in enumerate(reports.TEXTS.values()):
        (tmp_path / f"p{number}.html").write_text(html, encoding="utf-8")
    (tmp_path / "secret.txt").write_text(SECRET, encoding="utf-8")
    seen = reports._acts(tmp_path)
    acts = {name for number, name in enumerate(reports.TEXTS) if f"p{number}" in seen}
    assert {"script", "handler", "link", "frame", "object", "form", "refresh", "base", "look", "picture"} <= acts
    assert "secret.txt" in seen and "escapes" not in acts


@pytest.mark.parametrize("kind", DAMAGES)
def test_every_damage_changes_a_file(kind, tmp_path):
    run = make_run(tmp_path / "runs" / "one")
    before = (run / "results.csv").stat()
    DAMAGES[kind](run / "results.csv")
    path = run / "results.csv"
    assert not path.exists() or not path.is_file() or path.stat().st_mtime_ns != before.st_mtime_ns


def test_every_family_has_a_name_of_its_own():
    names = [family.__doc__ for family in audit.FAMILIES]
    assert all(names) and len(set(names)) == len(names)


def test_a_mirror_that_gives_other_bytes_is_seen(tmp_path, monkeypatch):
    kinds = ("as it is", "another file of the same length")
    monkeypatch.setattr("tools.audit.mirrors.LIES", {kind: LIES[kind] for kind in kinds})
    outcomes = [result.outcome for result in lying_mirrors(tmp_path / "sound")]
    assert outcomes == [SOUND, SOUND, REFUSED, SOUND]
    monkeypatch.setattr("dialnb.data.store.Wanted.verify", lambda _, raw, into: str(into.write(raw.read_bytes())))
    outcomes = [result.outcome for result in lying_mirrors(tmp_path / "trusting")]
    assert outcomes[2] == WRONG


def test_a_page_whose_name_says_what_is_set_by_hand_is_found(tmp_path):
    def set_by_hand(run):
        record = json.loads((run / "run.json").read_text("utf-8"))
        (run / "run.json").write_text(json.dumps(record | {"set_by_hand": {"seeds": 2}}), "utf-8")

    (result,) = reports._reported(tmp_path, {"two seeds": set_by_hand})
    assert result == Tried("two seeds", SOUND)


def test_the_table_of_the_contributors_has_every_family_and_nothing_wrong():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    heading = f"| family | faults | {' | '.join(OUTCOMES)} |"
    lines = [line.strip("| ").split(" | ") for line in text.partition(heading)[2].split("\n\n")[0].splitlines()[2:]]
    assert [name for name, *_ in lines] == [family.__doc__.splitlines()[0].rstrip(".") for family in audit.FAMILIES]
    for _, faults, *counts, wrong in lines:
        assert wrong == "–"
        assert int(faults) == sum(int(count) for count in counts if count != "–")
