"""Runs that the repository keeps: complete, small, and without the paths of the machine they ran on."""

from __future__ import annotations

import base64
import io
import json
import lzma
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import reporting
from PIL import Image

from dialnb import plots
from dialnb.errors import DataError
from dialnb.files import ITEMS, read_rows
from dialnb.report import build
from dialnb.report import gather as gathering
from dialnb.report.gather import gather
from dialnb.runs.figures import save_figure
from tools import record as records
from tools.digest import digest


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project" / "papers" / "dse").mkdir(parents=True)
    (tmp_path / "project" / "papers" / "dse" / "paper.yaml").touch()
    return tmp_path / "project"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return reporting.write_runs(tmp_path_factory.mktemp("written"))


@pytest.fixture
def runs(written, tmp_path):
    """A finished run of DSE, one of UMS without notebook, and a failed one of TaDSE."""
    return [shutil.copytree(run, tmp_path / "runs" / run.name) for run in written]


def test_a_run_is_kept_with_its_numbers_figures_and_notebook(runs, project, capsys):
    records.main([str(runs[0]), "--project", str(project)])
    assert "papers/dse/results/quick: " in capsys.readouterr().out
    kept = project / "papers" / "dse" / "results" / "quick"
    files = {"run.json", "results.csv.xz", "notebook.ipynb", "ro-crate-metadata.json"}
    assert {path.name for path in kept.iterdir()} == files | {"figures"}
    assert {path.name for path in (kept / "figures").iterdir()} == {"F3.csv", "F3.json"}
    assert [path.name for path in (project / "figures" / "dse").iterdir()] == ["F3.png"]


def test_large_data_of_a_figure_are_packed_and_rounded(runs, project):
    data = runs[0] / "figures" / "F3.csv"
    data.write_text("x,text\n0.123456789012,None\n-3.0,\n" + "17.00000000000001,NA\n" * 3_000)
    place, _ = records.record(runs[0], project)
    assert {path.name for path in (place / "figures").iterdir()} == {"F3.csv.xz", "F3.json"}
    packed = lzma.decompress((place / "figures" / "F3.csv.xz").read_bytes()).decode()
    assert packed == "x,text\n0.1235,None\n-3,\n" + "17,NA\n" * 3_000


def test_many_results_are_packed_as_they_are(runs, project):
    rows = runs[0] / "results.csv"
    rows.write_text(rows.read_text() * (100_000 // rows.stat().st_size + 1))
    place, _ = records.record(runs[0], project)
    assert not (place / "results.csv").exists()
    assert lzma.decompress((place / "results.csv.xz").read_bytes()) == rows.read_bytes()
    assert read_rows(place).equals(read_rows(runs[0]))


def test_what_was_kept_before_is_replaced(runs, project):
    place, figures = records.record(runs[0], project)
    (place / "old.csv").touch()
    (figures / "F9.png").touch()
    records.record(runs[0], project)
    assert not (place / "old.csv").exists() and not (figures / "F9.png").exists()


def test_a_notebook_is_kept_without_paths_of_its_machine(runs, project):
    notebook = runs[0] / "notebook.ipynb"
    raw = json.loads(notebook.read_text())
    raw["metadata"]["papermill"] = {"output_path": "/far/away/dse-quick-seed1/notebook.ipynb"}
    raw["cells"][1]["source"] = f"out = '/far/away/dse-quick-seed1'; here = '{runs[0]}'; root = '{project}/notebooks'"
    notebook.write_text(json.dumps(raw))
    records.record(runs[0], project)
    kept = json.loads((project / "papers/dse/results/quick/notebook.ipynb").read_text())
    assert (
        kept["cells"][1]["source"]
        == "out = 'runs/dse-quick-seed1'; here = 'runs/dse-quick-seed1'; root = './notebooks'"
    )


def test_a_notebook_is_kept_with_few_lines_about_stages(runs, project):
    notebook = runs[0] / "notebook.ipynb"
    raw = json.loads(notebook.read_text())
    said = [f"stage {i}: done in 1.0 s\n" for i in range(9)] + ["a line of the author's\n"]
    parts = [said[:3], said[3:4], said[4:]]  # a line each under papermill, many at once in JupyterLab
    raw["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": part} for part in parts]
    notebook.write_text(json.dumps(raw))
    records.record(runs[0], project)
    kept = json.loads((project / "papers/dse/results/quick/notebook.ipynb").read_text())
    (output,) = kept["cells"][1]["outputs"]
    text = "".join(output["text"])
    assert text.splitlines() == [
        *(f"stage {i}: done in 1.0 s" for i in range(4)), "a line of the author's",
        "... and 5 more: run.json lists every stage",
    ]  # fmt: skip


def test_pictures_of_a_notebook_become_smaller_and_stay_the_same_to_the_eye(runs, project):
    large = (runs[0] / "figures" / "F3.png").read_bytes()
    stored = io.BytesIO()
    Image.open(io.BytesIO(large)).convert("RGBA").save(stored, "PNG", compress_level=0)
    raw = json.loads((runs[0] / "notebook.ipynb").read_text())
    data = {"image/png": base64.b64encode(stored.getvalue()).decode()}
    raw["cells"][1]["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
    (runs[0] / "notebook.ipynb").write_text(json.dumps(raw))
    records.record(runs[0], project)
    kept = json.loads((project / "papers/dse/results/quick/notebook.ipynb").read_text())
    found = base64.b64decode(kept["cells"][1]["outputs"][0]["data"]["image/png"])
    assert len(found) < len(stored.getvalue()) / 3
    pixels = [np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int) for png in (large, found)]
    assert np.abs(pixels[0] - pixels[1]).mean() < 1


@pytest.mark.parametrize("broken", ["bm8gcGljdHVyZQ==", "?"])
def test_a_broken_picture_in_a_notebook_is_named_and_what_was_kept_stays(runs, project, broken):
    place, _ = records.record(runs[0], project)
    raw = json.loads((runs[0] / "notebook.ipynb").read_text())
    raw["cells"][1]["outputs"] = [{"output_type": "display_data", "data": {"image/png": broken}, "metadata": {}}]
    (runs[0] / "notebook.ipynb").write_text(json.dumps(raw))
    with pytest.raises(DataError, match="cell 2 shows a broken picture: "):
        records.record(runs[0], project)
    assert (place / "notebook.ipynb").is_file()


def test_a_styled_table_becomes_lighter_and_looks_the_same():
    frame = pd.DataFrame(np.arange(120).reshape(10, 12)).add_prefix("c")
    bold = lambda v: "font-weight: bold" if v % 7 == 0 else "opacity: 0.7" if v % 3 else ""  # noqa: E731
    html = frame.style.hide(axis="index").map(bold).to_html()
    light = records.lighter(html)
    assert len(light) < 0.5 * len(html) and records.lighter(light) == light
    rules = dict(re.findall(r"#T_\w+ \.(look\d) \{\n?([^}]*?);\n\}", light))
    for look, value in re.findall(r'<td class="col\d+ ?(\w*)">(\d+)</td>', light):
        assert rules.get(look, "") == bold(int(value))
    assert len(re.findall("<td", light)) == 120


def test_the_crate_of_a_record_has_what_ro_crate_requires(runs, project):
    place, _ = records.record(runs[0], project)
    described = json.loads((place / "ro-crate-metadata.json").read_text(encoding="utf-8"))
    assert described["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in described["@graph"]}
    assert len(entities) == len(described["@graph"]) and all("@type" in entity for entity in entities.values())
    descriptor = entities["ro-crate-metadata.json"]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    root = entities["./"]
    assert root["@type"] == "Dataset"
    assert all(root[name] for name in ("name", "description", "datePublished", "license"))
    parts = {part["@id"] for part in root["hasPart"]}
    assert all((place / part).is_file() and entities[part]["@type"] == "File" for part in parts)

    def references(value):
        if isinstance(value, dict):
            yield from [value["@id"]] if set(value) == {"@id"} else (r for v in value.values() for r in references(v))
        elif isinstance(value, list):
            yield from (reference for item in value for reference in references(item))

    outside = {r for entity in entities.values() for r in references(entity)} - set(entities)
    assert outside == {"https://w3id.org/ro/crate/1.1"}
    assert entities["#run"]["@type"] == "CreateAction" and entities["#run"]["instrument"] == [{"@id": "#dialnb"}]
    assert any(entity.get("license") == "CC BY 3.0" for entity in entities.values())


def test_a_record_describes_the_files_it_has(runs, project):
    place, _ = records.record(runs[0], project)
    (root,) = (
        part for part in json.loads((place / "ro-crate-metadata.json").read_text())["@graph"] if part["@id"] == "./"
    )
    named = {part["@id"] for part in root["hasPart"]}
    assert named and named == {p.relative_to(place).as_posix() for p in place.rglob("*")
                               if p.is_file() and p.name != "ro-crate-metadata.json"}  # fmt: skip


def test_a_run_that_failed_is_not_kept(runs, project, capsys):
    with pytest.raises(DataError, match="not recorded: the run is failed DataError"):
        records.record(runs[2], project)
    assert not (project / "papers" / "tadse").exists()
    with pytest.raises(SystemExit, match="1"):
        records.main([str(runs[2]), "--project", str(project)])
    assert capsys.readouterr().err.startswith(f"record: {runs[2]} is not recorded")


def test_of_a_run_with_values_set_by_hand_only_how_it_ran_is_kept(runs, project):
    said = json.loads((runs[0] / "run.json").read_text())
    (runs[0] / "run.json").write_text(json.dumps(said | {"set_by_hand": {"seed": 2, "max_steps": 3}}))
    with pytest.raises(DataError, match=r"it has no tables/training-times.csv"):
        records.record(runs[0], project)
    (runs[0] / "tables").mkdir(exist_ok=True)
    (runs[0] / "tables" / "training-times.csv").write_text("model,projected hours\nDSE,4.0\n")
    (place,) = records.record(runs[0], project)
    assert place == project / "papers" / "dse" / "trial" / "quick"
    assert {path.name for path in place.iterdir()} == {"run.json", "training-times.csv"}
    (runs[0] / "gpu.csv").write_text("2026/11/17 14:53:01.123, 97 %, 12 %, 10240 MiB, 350.12 W\n")
    records.record(runs[0], project)
    assert (place / "gpu.csv").is_file()
    assert not (project / "papers" / "dse" / "results").exists() and not (project / "figures").exists()


def test_a_record_has_each_stage_of_its_run_on_a_line(runs, project):
    told = {"seconds": 1.5, "cached": False, "facts": {"steps": [1, 2]}}
    stages = [{"name": name, **told} for name in ('first – "here"', "second")]
    run = json.loads((runs[1] / "run.json").read_text()) | {"stages": stages}
    (runs[1] / "run.json").write_text(json.dumps(run))
    place, _ = records.record(runs[1], project)
    text = (place / "run.json").read_text(encoding="utf-8")
    assert json.loads(text) == run
    assert sum(line.startswith('  {"name": ') for line in text.splitlines()) == 2
    records.record(place, project)
    assert (place / "run.json").read_text(encoding="utf-8") == text


def test_a_notebook_too_large_to_be_shown_is_refused(runs, project, monkeypatch):
    monkeypatch.setattr(records, "LARGEST", 100)
    with pytest.raises(DataError, match="draw fewer points"):
        records.record(runs[0], project)


def test_the_report_finds_what_was_kept(runs, project, monkeypatch):
    for run in runs[:2]:
        records.record(run, project)
    monkeypatch.setattr(gathering, "project_root", lambda: project)
    assert [path.parts[-3:] for path in gathering.recorded_runs()] == [
        ("dse", "results", "quick"),
        ("ums", "results", "gpu"),
    ]


# --- several seeds ----------------------------------------------------------------------------------------------------


@pytest.fixture
def second(tmp_path, runs):
    """A run of UMS like the first, from another seed and with other scores."""
    rows = reporting.adversarial_rows()
    gpu = json.loads((runs[1] / "run.json").read_text())["hardware"]
    return reporting.write_run(
        tmp_path / "ums-gpu-seed2", "ums", rows.assign(value=rows["value"] + 0.01), profile="gpu", seed=2, hardware=gpu
    )


def test_a_run_of_another_seed_joins_the_record_and_both_are_judged_together(runs, second, project):
    place, _ = records.record(runs[1], project)
    records.main(["--pool", str(second), "--project", str(project)])
    rows = read_rows(place)
    assert rows.groupby("train_seed")["value"].size().to_dict() == {1: 24, 2: 24}
    means = rows.groupby("train_seed")["value"].mean()
    assert means[2] - means[1] == pytest.approx(0.01)
    (joined,) = json.loads((place / "run.json").read_text())["pooled"]
    assert joined["seed"] == 2 and joined["code"]["commit"] == "0123456789abcdef" and joined["seconds"] == 187.4
    judged = {claim["id"]: claim for claim in json.loads((place / "claims.json").read_text())}
    assert any("2 trainings" in str(claim) for claim in judged.values())
    crate = json.loads((place / "ro-crate-metadata.json").read_text())
    assert any("with profile gpu, seeds 1, 2" in entity.get("name", "") for entity in crate["@graph"])


def test_a_figure_over_training_seeds_shows_all_runs_of_a_record_and_others_stay(runs, second, project, monkeypatch):
    words = {"caption": "c", "alt": "a", "arguments": {"x": "at", "line": "model"}}
    for run, seed in ((runs[1], 1), (second, 2)):
        over = pd.DataFrame({"model": "M", "at": [1.0, 2.0], "seed": seed, "value": [seed, seed + 1.0]})
        save_figure(run / "figures", "sweep", plots.sweep, over, **words)
        save_figure(run / "figures", "drawn", plots.sweep, over.assign(seed=[0, 1]), **words)
    place, figures = records.record(runs[1], project)
    before = {name: (figures / f"{name}.png").read_bytes() for name in ("sweep", "drawn")}
    monkeypatch.setattr(records, "PACKED", 60)  # bytes: one run is smaller, two are not
    records.pool(second, project)
    assert (place / "figures" / "sweep.csv.xz").is_file()
    assert read_rows(place / "figures", "sweep.csv")["seed"].tolist() == [1, 1, 2, 2]
    assert len(read_rows(place / "figures", "drawn.csv")) == 2
    after = {name: (figures / f"{name}.png").read_bytes() for name in before}
    assert after["sweep"] != before["sweep"] and after["drawn"] == before["drawn"]


def test_a_pooled_record_is_counted_by_its_trainings(runs, second, project, tmp_path):
    place, _ = records.record(runs[1], project)
    records.pool(second, project)
    (group,) = gather([place])
    assert group.seeds == [1, 2]
    text = digest([group], project)
    assert "| gpu | bert-base-uncased | 2 |" in text and "; seed 2 joined it: 187 s, 2025-11-02, commit 0123456" in text
    index = build([place], tmp_path / "site").read_text(encoding="utf-8")
    page = (tmp_path / "site" / "ums-gpu.html").read_text(encoding="utf-8")
    assert "<td>1, 2</td>" in index and "Seeds <strong>1, 2</strong>" in page and "<h3>Seed 2</h3>" in page
    assert all(f"<code>dialnb run ums --profile gpu --seed {seed}</code>" in page for seed in (1, 2))


def test_a_run_that_joined_a_record_is_not_counted_again_beside_it(runs, second, project):
    place, _ = records.record(runs[1], project)
    records.pool(second, project)
    (group,) = gather([second, runs[1], place])
    assert [run.folder for run in group.runs] == [place] and len(group.results) == len(read_rows(place))


def test_a_run_of_fewer_models_joins_and_the_record_says_so(runs, second, project, tmp_path):
    for folder, models in ((runs[1], ["BERT", "UMS_BERT", "BERT+"]), (second, ["BERT"])):
        run = json.loads((folder / "run.json").read_text())
        told = {"parameters": run["parameters"] | {"models": models, "workers": len(models)}}
        by_hand = {"set_by_hand": {"models": models}} if folder == second else {}
        (folder / "run.json").write_text(json.dumps(run | told | by_hand))
    place, _ = records.record(runs[1], project)
    records.pool(second, project)
    (joined,) = json.loads((place / "run.json").read_text())["pooled"]
    assert joined["shorter"] == {"models": ["BERT"]}
    text = digest(gather([place]), project)
    assert "seed 2 joined it in part" in text and "| gpu | bert-base-uncased | 2 | 2 |" in text
    build([place], tmp_path / "site")
    page = (tmp_path / "site" / "ums-gpu.html").read_text(encoding="utf-8")
    assert "equal settings, but models BERT; its rows" in page


@pytest.mark.parametrize(("first", "then", "told"), [(200, None, []), (None, 200, [200])])
def test_of_runs_that_share_a_machine_one_times_its_trainings(first, then, told, runs, second, project):
    for folder, timed in ((runs[1], first), (second, then)):
        run = json.loads((folder / "run.json").read_text())
        parameters = run["parameters"] | {"timed_steps": timed}
        by_hand = {"set_by_hand": {} if timed else {"timed_steps": None}}
        (folder / "run.json").write_text(json.dumps(run | {"parameters": parameters} | by_hand))
    place, _ = records.record(runs[1], project)
    records.pool(second, project)
    (joined,) = json.loads((place / "run.json").read_text())["pooled"]
    assert joined["shorter"] == {"timed_steps": told}


def test_what_items_scored_is_kept_in_lists_and_read_item_by_item(runs, second, project):
    """Row by row, half a million items took 1.5 MB of a wheel."""
    labels = {"metric": "R10@1", "model": ["BERT"] * 3 + ["none"] * 3, "adversary": [np.nan] * 3 + ["last"] * 3}
    values = {"item": [0, 1, 2] * 2, "group": [*"aab"] * 2, "value": [0.0, 1.0, 0.5, 1, 1, np.nan]}
    items = pd.DataFrame(labels | values)
    for folder in (runs[1], second):
        items.to_csv(folder / ITEMS, index=False)
    place, _ = records.record(runs[1], project)
    pd.testing.assert_frame_equal(read_rows(place, ITEMS)[items.columns], items)
    assert len(pd.read_csv(place / ITEMS)) == 2, "a row for each model"
    records.pool(second, project)
    joined = read_rows(place, ITEMS)
    assert joined.groupby("train_seed").size().to_dict() == {1: 6, 2: 6}
    pd.testing.assert_frame_equal(joined[joined.train_seed == 2][items.columns].reset_index(drop=True), items)
    items.iloc[:0].to_csv(second / ITEMS, index=False)
    assert read_rows(second, ITEMS).empty


def test_a_run_joins_once_and_only_a_record_of_the_same_settings(runs, second, project):
    with pytest.raises(DataError, match="nothing is recorded in papers/ums/results/gpu"):
        records.pool(second, project)
    records.record(runs[1], project)
    with pytest.raises(DataError, match="seed 1 is in it"):
        records.pool(runs[1], project)
    record = json.loads((second / "run.json").read_text())
    (second / "run.json").write_text(json.dumps(record | {"parameters": {"seed": 2, "encoder": "small"}}))
    with pytest.raises(DataError, match="its encoder is small, that of the record mini"):
        records.pool(second, project)
    (second / "run.json").write_text(json.dumps(record | {"parameters": record["parameters"] | {"limit": 50}}))
    with pytest.raises(DataError, match="its limit is 50, that of the record None"):
        records.pool(second, project)
    kept = project / "papers/ums/results/gpu/run.json"
    told = json.loads(kept.read_text())
    kept.write_text(json.dumps(told | {"parameters": told["parameters"] | {"rates": [1e-5, 3e-5]}}))
    (second / "run.json").write_text(json.dumps(record | {"parameters": record["parameters"] | {"rates": [1e-5]}}))
    with pytest.raises(DataError, match="its rates is"):  # among which others are chosen
        records.pool(second, project)
    kept.write_text(json.dumps(told))
    (second / "run.json").write_text(json.dumps(record | {"status": "failed"}))
    with pytest.raises(DataError, match="the run is failed"):
        records.pool(second, project)
    (second / "run.json").write_text(json.dumps(record))
    pd.DataFrame({"item": [1], "value": [0.0]}).to_csv(second / "items.csv.xz", index=False)
    with pytest.raises(DataError, match=r"only one of them has items"):
        records.pool(second, project)


def test_a_record_with_flat_names_of_settings_compares_with_a_run_that_has_them_by_training():
    flat = {"learning_rate": 1e-4, "epochs": None, "adapt_batch": 256, "mdc_learning_rate": 1e-5, "seed": 1}
    train = {"DialogueCSE": {"learning_rate": 1e-4}, "adaptation": {"batch_size": 256}, "SiameseBERT-s": {}}
    train |= {"DialogueCSE on MDC": {"learning_rate": 1e-5}}
    old, new = ({"slug": "dialoguecse", "parameters": each} for each in (flat, {"train": train, "seed": 1}))
    assert records.by_training(old) == records.by_training(new)
    assert records.by_training(new)["train.DialogueCSE on MDC.learning_rate"] == 1e-5
