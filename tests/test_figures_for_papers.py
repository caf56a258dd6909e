"""Figures for papers: as wide as a column of the ACL, with their fonts inside."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from dialnb import cli

ROOT = Path(__file__).resolve().parent.parent


def test_the_style_acl_writes_pdf_of_column_width_with_embedded_fonts(tmp_path, capsys):
    (tmp_path / "figures").mkdir()
    for path in (ROOT / "papers" / "dse" / "results" / "gpu" / "figures").glob("training.*"):
        shutil.copy(path, tmp_path / "figures")
    for path in (ROOT / "papers" / "dse" / "results" / "gpu" / "figures").glob("sweep.*"):
        shutil.copy(path, tmp_path / "figures")
    assert cli.main(["figures", str(tmp_path), "--style", "acl"]) == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "figures").glob("*.pdf")}
    assert set(made) == {"training-acl.pdf", "sweep-acl.pdf"}, capsys.readouterr().out
    for name, content in made.items():
        width = float(re.search(rb"/MediaBox \[ 0 0 ([0-9.]+)", content)[1]) / 72
        assert 3.0 < width <= 6.3, name
        assert b"/FontFile2" in content and b"/Type3" not in content and b"STIX" in content
