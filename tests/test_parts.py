"""A large file in parts: they join to the same bytes, or are refused by name."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dialnb.errors import DataError
from tools.parts import bytes_of, join, main, split

DATA = bytes(range(256)) * 40  # 10,240 bytes


@pytest.fixture
def parts(tmp_path):
    whole = tmp_path / "weights.bin"
    whole.write_bytes(DATA)
    split(whole, 4096, tmp_path / "parts")
    return tmp_path / "parts"


def test_parts_join_to_the_same_bytes(parts, tmp_path):
    sizes = [path.stat().st_size for path in sorted(parts.glob("weights.bin.*"))]
    assert sizes == [4096, 4096, 2048]
    assert join(parts, tmp_path / "there" / "weights.bin").read_bytes() == DATA


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_a_part_that_is_missing_or_changed_is_named_and_nothing_is_written(parts, tmp_path, harm):
    second = parts / "weights.bin.002"
    second.unlink() if harm == "missing" else second.write_bytes(second.read_bytes()[::-1])
    with pytest.raises(DataError, match=r"weights\.bin\.002 is (missing|not the part)"):
        join(parts, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_a_folder_that_holds_no_parts_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no parts\.json"):
        join(tmp_path, tmp_path / "joined")


def test_the_commands_split_and_join(tmp_path):
    (tmp_path / "weights.bin").write_bytes(DATA)
    run = CliRunner().invoke(main, ["split", str(tmp_path / "weights.bin"), "--size", "4K", "-o", str(tmp_path / "p")])
    assert "3 parts of weights.bin" in run.output
    CliRunner().invoke(main, ["join", str(tmp_path / "p"), "-o", str(tmp_path / "joined")], catch_exceptions=False)
    assert (tmp_path / "joined").read_bytes() == DATA


def test_sizes_are_read_as_people_write_them():
    assert [bytes_of(size) for size in ("300", "25M", "25mb", "1G")] == [300, 25 * 10**6, 25 * 10**6, 10**9]
    assert "no number of bytes" in CliRunner().invoke(main, ["split", "x", "--size", "much", "-o", "y"]).output
