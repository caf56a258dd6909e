"""What goes with runs: figures, comparison, export, doctor, workflow, and packs for a bare machine."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
import tiny
import yaml
from matplotlib.figure import Figure

from dialnb import cli, plots
from dialnb.errors import DataError, UnknownName
from dialnb.files import read_json, write_json
from dialnb.models.places import find_encoder
from dialnb.progress import Bar
from dialnb.runs import start, tools
from dialnb.runs.figures import redraw
from dialnb.runs.profiles import run_name
from dialnb.runs.provenance import commit
from dialnb.training.stage import Result
from tools import doctor
from tools import pack as packing

ROOT = Path(__file__).resolve().parent.parent


def rows(value: float = 50.0) -> pd.DataFrame:
    given = {"task": "toy", "dataset": "words", "metric": "m", "protocol": "paper", "seed": [1, 2]}
    return pd.DataFrame(given | {"value": [value, 60.0], "n": 10})


def make_encoder(seed: int) -> Result:
    return Result(tiny.encoder(seed=seed))


def count_all(corpora: list) -> int:
    return sum(map(len, corpora))


def draw(data: pd.DataFrame, colour: str) -> Figure:
    figure = Figure()
    figure.subplots().plot(data["value"], color=colour)
    figure.axes[0].set_title("title")
    return figure


draw.__module__, draw.__qualname__ = "dialnb.plots", "draw_toy"


def prepare(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """The toy project, a cache, and a figure that can be drawn again."""
    patch.setenv("DIALNB_PROJECT", str(ROOT / "tests" / "toy"))
    patch.setenv("DIALNB_CACHE", str(cache))
    patch.setitem(plots.FIGURES, "draw_toy", draw)


def finished_run(folder: Path, value: float = 50.0, **settings) -> Path:
    run = start("toy", "smoke", out=folder, **settings)
    run.stage("train Toy", make_encoder, seed=3)
    run.add(rows(value), model="Toy", table="T1").note_absent("not there", "T1", model="Absent")
    run.figure("F1", draw, data=rows(value), caption="Words", alt="A line", colour="black")
    run.figure("F2", draw(rows(), "red"), data=rows(), caption="Words", alt="A line")
    run.table("T1")
    run.finish()
    return run.folder


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A folder with a finished run and the cache it was made in."""
    folder = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, folder / "cache")
        finished_run(folder / "run")
    return folder


@pytest.fixture
def finished(original, tmp_path, monkeypatch):
    """A function that gives a finished run with the given value in its results."""
    prepare(monkeypatch, shutil.copytree(original / "cache", tmp_path / "cache"))

    def make(name: str, *value: float, **settings) -> Path:
        if value or settings:
            return finished_run(tmp_path / name, *value, **settings)
        return shutil.copytree(original / "run", tmp_path / name)

    return make


# --- the run's own parts ----------------------------------------------------------------------------------------------


def test_the_repository_around_an_installed_package_is_not_that_of_its_code(tmp_path):
    (tmp_path / "site" / "dialnb").mkdir(parents=True)
    (tmp_path / "site" / "dialnb" / "__init__.py").touch()
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "Mine"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    assert commit(tmp_path / "site")["commit"] is None


def test_a_run_writes_down_how_busy_the_gpus_are(finished, tmp_path, monkeypatch):
    line = "2026/11/17 14:53:0{}.123, {} %, 12 %, {} MiB, 350.12 W"
    lines = [line.format(1, 60, 2048), line.format(2, 100, 3072), "2026/11/17 14:5"]
    told = "\n".join(["#!/bin/sh", *(f"echo '{each}'" for each in lines), "exec sleep 60"])
    (tmp_path / "nvidia-smi").write_text(told)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    begun, begin = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **how: begun.append(begin(*given, **how)) or begun[-1])
    run = start("toy", "smoke", out=tmp_path / "run")
    kept = tmp_path / "run" / "gpu.csv"
    while not kept.is_file() or len(kept.read_text().splitlines()) < len(lines):
        time.sleep(0.01)
    run = start("toy", "smoke", out=tmp_path / "run")  # as when a cell is run again
    while not kept.is_file() or len(kept.read_text().splitlines()) < len(lines):
        time.sleep(0.01)
    run.finish()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["gpu_busy"], record["gpu_memory_gb"]) == (80, 3) and len(kept.read_text().splitlines()) == 3
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found' >&2\nexit 6\n")
    start("toy", "smoke", out=tmp_path / "run").finish()
    assert "gpu_busy" not in json.loads((tmp_path / "run" / "run.json").read_text()) and not kept.exists()
    assert all(each.returncode is not None for each in begun), "none is left behind, ended or not"


def test_a_cell_that_is_run_twice_replaces_its_rows(finished, tmp_path):
    run = start("toy", "smoke", out=tmp_path / "twice")
    run.add(rows(1.0), model="A").add(rows(2.0), model="A").add(rows(3.0), model="B")
    assert run.results.query("model == 'A' and seed == 1").value.tolist() == [2.0] and len(run.results) == 4
    for reason in ("first", "second"):
        run.note_absent(reason, "T1", model="C")
    assert run.missing == [{"table": "T1", "model": "C", "reason": "second"}]
    items = pd.DataFrame({"item": [0, 1], "value": [1, 0]})
    assert len(run.add_items(items, model="A").add_items(items, model="A").add_items(items, model="B").items) == 4


def test_data_handed_to_a_stage_stand_in_the_record_with_fingerprint_and_licence(finished, tmp_path):
    from dialnb.data import load

    run = start("toy", "smoke", out=tmp_path / "x")
    run.stage("count", count_all, corpora=[load("bundled/SNIPS"), load("bundled/STS-B")])
    run.finish()
    record = json.loads((run.folder / "run.json").read_text())
    assert [entry["name"] for entry in record["data"]] == ["bundled/SNIPS", "bundled/STS-B", "bundled/BANKING77"]
    assert all(len(entry["fingerprint"]) == 16 and entry["licence"] in record["licences"] for entry in record["data"])


def test_rows_without_a_value_are_refused(finished, tmp_path):
    with pytest.raises(Exception, match="column 'value'"):
        start("toy", "smoke", out=tmp_path / "x").add(pd.DataFrame({"score": [1]}))


def test_the_record_is_strict_json_and_says_running_until_the_end(finished, tmp_path):
    run = start("toy", "smoke", out=tmp_path / "x")
    run.note(speed=float("nan"), shape=(1, 2))
    run.save()
    record = json.loads((tmp_path / "x" / "run.json").read_text(), parse_constant=pytest.fail)
    assert record["status"] == "running" and record["speed"] is None and record["shape"] == [1, 2]


# --- figures, export, compare, doctor ---------------------------------------------------------------------------------


def test_figures_are_drawn_again_from_their_data_in_any_format_and_style(finished):
    folder = finished("run")
    before = (folder / "figures" / "F1.svg").read_bytes()
    (folder / "figures" / "F1.svg").unlink()
    written, fixed = redraw(folder, ["svg", "pdf"])
    assert [path.name for path in written] == ["F1.svg", "F1.pdf"] and fixed == ["F2"]
    assert (folder / "figures" / "F1.svg").read_bytes() == before
    slides, _ = redraw(folder, ["svg"], "slides")
    assert slides[0].name == "F1-slides.svg" and slides[0].read_bytes() != before


def test_the_command_names_the_figures_that_it_can_only_copy(finished, capsys):
    folder = finished("run")
    assert cli.main(["figures", str(folder), "--format", " SVG,pdf,"]) == 0
    *written, copied = capsys.readouterr().out.splitlines()
    assert written == [str(folder / "figures" / name) for name in ("F1.svg", "F1.pdf")]
    assert copied == "cannot be redrawn, only copied (drawn in the notebook itself): F2"


@pytest.mark.parametrize(
    "function", ["subprocess:call", "dialnb.runs.tools:export", "dialnb.plots:save", "no words", 3]
)
def test_a_stored_figure_is_drawn_by_functions_of_figures_alone_and_where_its_file_lies(finished, tmp_path, function):
    """Whoever sends a run decides neither what is called nor where is written."""
    folder = finished("run")
    path = folder / "figures" / "F1.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"function": function, "name": "../../stray"}))
    assert redraw(folder, ["pdf"]) == ([], ["F1", "F2"])
    path.write_text(json.dumps(about | {"name": "../../stray"}))
    written, _ = redraw(folder, ["pdf"], out=tmp_path / "again")
    assert written == [tmp_path / "again" / "F1.pdf"] and not list(tmp_path.glob("**/stray*"))


@pytest.mark.parametrize("change", [{"arguments": {"color": "red"}}, {"arguments": None}, {"dtypes": {"value": "x"}}])
def test_a_stored_figure_that_cannot_be_drawn_is_a_sentence(finished, change):
    folder = finished("run")
    path = folder / "figures" / "F1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=r"F1\.json does not say how to draw F1 again"):
        redraw(folder, ["pdf"])


def test_every_figure_function_is_on_the_list():
    drawn = set()
    for found in pkgutil.iter_modules(plots.__path__, "dialnb.plots."):
        for draw in vars(importlib.import_module(found.name)).values():
            if hasattr(draw, "__wrapped__") and draw.__module__ == found.name:
                drawn.add(draw.__name__)
    assert drawn == set(plots.FIGURES) <= set(dir(plots))


def test_a_figure_needs_words_for_those_who_do_not_see_it(finished, tmp_path):
    with pytest.raises(DataError, match="alternative text"):
        start("toy", "smoke", out=tmp_path / "x").figure("F", Figure(), data=rows(), caption="c", alt="")


def test_wrong_styles_formats_and_folders_are_refused(finished, tmp_path):
    folder = finished("run")
    with pytest.raises(UnknownName, match="did you mean 'slides'"):
        redraw(folder, ["png"], "slide")
    with pytest.raises(UnknownName, match="did you mean 'png'"):
        redraw(folder, ["pnq"])
    with pytest.raises(DataError, match="holds no figures"):
        redraw(tmp_path, ["png"])


def test_a_model_of_a_run_is_exported_as_a_sentence_transformers_folder(finished, tmp_path, capsys):
    from sentence_transformers import SentenceTransformer

    folder = finished("run")
    assert cli.main(["export", str(folder), "Toy", str(tmp_path / "model")]) == 0
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert abs(loaded.encode(["book a table"]) - tiny.encoder(seed=3).encode(["book a table"])).max() < 1e-5
    assert cli.main(["export", str(folder), "Toy", str(tmp_path / "model")]) == 1
    assert cli.main(["export", str(folder), "Tory", str(tmp_path / "other")]) == 2
    assert "did you mean 'Toy'" in capsys.readouterr().err
    (folder / "results.csv").unlink()
    assert cli.main(["export", str(folder), "Toy", str(tmp_path / "without results")]) == 0


def test_a_model_that_was_changed_in_the_cache_is_not_exported(finished, tmp_path):
    folder = finished("run")
    stages = tmp_path / "cache" / "stages"
    (weights,) = stages.glob("*/encoder-*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"model\.safetensors is not what was written there"):
        tools.export(folder, "Toy", tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("change", [{"slug": "../../precious"}, {"profile": ".."}, {"profile": 3}, {"slug": "a/b"}])
def test_a_run_whose_names_are_paths_is_refused_before_anything_is_replaced(finished, tmp_path, change):
    from tools.record import record

    folder = finished("run")
    write_json(folder / "run.json", read_json(folder / "run.json") | change)
    (tmp_path / "precious").mkdir()
    with pytest.raises(DataError, match=r"is not the record of a run|is not as dialnb writes it"):
        record(folder, tmp_path / "project")
    (folder / "run.json").write_text("{")
    with pytest.raises(DataError, match="is damaged, so that nothing is known of the run"):
        tools.open_run(folder)
    assert (tmp_path / "precious").is_dir() and not (tmp_path / "project").exists()


def test_two_runs_are_compared_in_settings_and_results(finished):
    first, second = finished("one"), finished("two", 52.5, overrides={"steps": 5})
    text = tools.compare(first, second)
    assert "parameters.steps: 4 | 5" in text
    assert "2 in both, 1 equal, 1 different; 0 only in 1, 0 only in 2" in text and "mean difference +2.5" in text
    assert "2 in both, 2 equal, 0 different" in tools.compare(first, first)
    rows = pd.read_csv(first / "results.csv")
    rows.assign(value=[*rows["value"][:1], float("nan")]).to_csv(first / "results.csv", index=False)
    assert "2 in both, 2 equal, 0 different; 0 only in 1, 0 only in 2" in tools.compare(first, first), "without a value"
    assert "2 in both, 0 equal, 2 different; 0 only in 1, 0 only in 2" in tools.compare(first, second)
    with pytest.raises(DataError, match="not the folder of a run"):
        tools.compare(first, first.parent)


def test_the_doctor_names_what_is_missing_and_how_to_get_it(capsys, monkeypatch):
    found = {finding.subject: finding for finding in doctor.examine(ROOT / "tests" / "toy")}
    assert found["torch"].state == "ok" and found["papermill"].state == "ok"
    assert "quick lacks SGD" in found["toy"].words and found["toy"].words.startswith("ready: smoke")
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["numpy>=1", "numpy>=999", "nothing-like-this>=1"])
    assert doctor.main(["--project", str(ROOT / "tests" / "toy")]) == 1
    out = capsys.readouterr().out
    assert "'numpy>=999'" in out and "missing: pip install -c constraints.txt 'nothing-like-this>=1'" in out


def test_progress_is_lines_where_there_is_no_terminal(capsys):
    with Bar(total=4, desc="train", unit="step", mininterval=0) as bar:
        for loss in (0.5, 0.25, 0.125, 0.1):
            bar.set_postfix_str(f"loss {loss}", refresh=False)
            bar.update()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("    train  1/4 steps  loss 0.5  ") and lines[0].endswith(" left")
    assert lines[-1] == "    train  4/4 steps  loss 0.1  done in 00:00"


# --- the workflow -----------------------------------------------------------------------------------------------------


def test_the_workflow_for_gpu_runners_keeps_to_our_commands():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "gpu.yml").read_text(encoding="utf-8"))
    triggers = workflow[True]  # YAML 1.1 reads the key `on` so
    assert "workflow_dispatch" in triggers and triggers["schedule"]
    job = workflow["jobs"]["run"]
    assert job["runs-on"] == ["self-hosted", "linux", "gpu"]
    assert any(step.get("run", "").endswith("-m tools.doctor") for step in job["steps"])
    commands = [step["run"] for step in job["steps"] if "-m dialnb" in step.get("run", "")]
    assert [command.split("dialnb ")[1].split()[0] for command in commands] == ["run", "run", "report"]
    assert set(job["steps"][-1]["with"]["path"].split()) == {"report", "runs"}


# --- packs ------------------------------------------------------------------------------------------------------------


def test_packages_that_the_target_has_stay_out_and_wrong_versions_go_in():
    usual = packing.Target("manylinux_2_28_x86_64", "3.12", packing.usual_packages())
    missing = packing.missing_packages(usual)
    assert {"papermill", "ipykernel", "umap-learn", "pyzmq"} <= set(missing)
    assert not {"torch", "numpy", "pandas", "transformers", "jupyterlab", "dialnb"} & set(missing)
    assert "umap-learn" not in packing.missing_packages(usual, ["umap-learn"])
    everything = {
        d.metadata["Name"].lower().replace("_", "-").replace(".", "-"): d.version for d in metadata.distributions()
    }
    like_here = packing.Target("manylinux_2_28_x86_64", "3.12", everything)
    assert packing.missing_packages(like_here) == {}
    old = packing.Target("manylinux_2_28_x86_64", "3.12", everything | {"papermill": "1.0"})
    assert list(packing.missing_packages(old)) == ["papermill"]
    with pytest.raises(DataError, match=r"torch.*but has 1\.0; install it there"):
        packing.missing_packages(packing.Target("manylinux_2_28_x86_64", "3.12", everything | {"torch": "1.0"}))


def test_a_freeze_of_the_target_is_understood(tmp_path):
    text = "torch==2.11.0+cu128\n# words\nPyYAML==6.0 # words\nmine @ file:///x\n-e git+https://x#egg=y\n\n"
    (tmp_path / "freeze").write_text(text)
    assert packing.read_have(tmp_path / "freeze") == {"torch": "2.11.0", "pyyaml": "6.0", "mine": ""}


def test_an_archive_of_another_kind_is_refused(tmp_path, capsys):
    place = ["--project", str(ROOT / "tests" / "toy"), "--profile", "smoke", "-o", str(tmp_path / "x.zip")]
    with pytest.raises(SystemExit):
        packing.main(["toy", *place])
    assert "the archive must be named *.tar" in capsys.readouterr().err


def test_wheels_for_another_platform_are_fetched_and_unpacked(tmp_path):
    target = packing.Target("manylinux_2_28_x86_64", "3.12", {})
    try:
        packing.pack_packages({"pyzmq": metadata.version("pyzmq")}, target, tmp_path / "site")
    except DataError as error:
        pytest.skip(f"no package index can be reached: {str(error)[-200:]}")
    assert list((tmp_path / "site" / "zmq").glob("backend/cython/_zmq*.so"))
    assert list((tmp_path / "site").glob("pyzmq-*.dist-info"))


def test_packed_records_are_read_without_their_source_files(mirror, tmp_path, monkeypatch):
    from dialnb.data.datasets import load
    from dialnb.data.store import Store

    monkeypatch.setenv("DIALNB_MIRROR", str(mirror))
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "here"))
    licences = packing.pack_data(["CamRest676", "bundled/BANKING77"], tmp_path / "there")
    monkeypatch.delenv("DIALNB_MIRROR")
    assert [text.partition(":")[0] for text in licences] == ["CamRest676", "bundled/BANKING77"]
    assert len(load("CamRest676", store=Store(cache=tmp_path / "there", offline=True))) == 676
    assert not (tmp_path / "there" / "files").exists()


def test_data_that_cannot_be_had_can_be_left_out_of_a_pack(tmp_path, monkeypatch):
    packed = []
    monkeypatch.setattr(packing, "missing_packages", lambda *_: {})
    monkeypatch.setattr(packing, "pack_project", lambda *_: None)
    monkeypatch.setattr(packing, "pack_encoders", lambda *_: [])
    monkeypatch.setattr(packing, "pack_data", lambda names, _: packed.extend(names) or [])
    target = packing.Target(packing.host_platform(), "3.12", {})
    packing.pack(["toy"], "quick", tmp_path / "x.tar", ROOT / "tests" / "toy", target, without=("SGD", "pip"))
    assert packed == ["bundled/BANKING77", "Ubuntu-V1", "Douban:official"]


@pytest.fixture
def folder_encoder(tmp_path) -> Path:
    return tiny.encoder().save(tmp_path / "some place" / "my $encoder")


def test_a_folder_is_packed_and_the_script_names_it_there(folder_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "missing_packages", lambda *_: {})
    monkeypatch.setattr(packing, "pack_project", lambda *_: None)
    target = packing.Target(packing.host_platform(), "3.12", {})
    root = ROOT / "tests" / "toy"
    sizes, *_ = packing.pack(["toy"], "smoke", tmp_path / "x.tar", root, target, encoder=str(folder_encoder))
    with tarfile.open(tmp_path / "x.tar") as archive:
        archive.extractall(tmp_path / "there", filter="data")
    packed = tmp_path / "there" / "dialnb-pack"
    assert (packed / "encoders" / "my $encoder" / "model.safetensors").is_file() and sizes["encoders"] > 10_000
    script = (packed / "run.sh").read_text()
    assert str(tmp_path) not in script
    words = subprocess.run(
        ["sh", "run.sh"], cwd=packed, env={**os.environ, "PYTHON": "echo"}, capture_output=True, text=True
    )
    assert f"--encoder {packed}/encoders/my $encoder --out" in words.stdout


@pytest.mark.parametrize("to", ["secret.txt", "/etc/passwd", "folder", "loop"])
def test_a_pack_follows_no_link_out_of_the_folder_of_an_encoder(folder_encoder, tmp_path, to):
    (tmp_path / "secret.txt").write_text("canary")
    (tmp_path / "folder").mkdir()
    link = folder_encoder / ("1_Pooling/loop" if to == "loop" else "extra.txt")
    link.symlink_to(link if to == "loop" else tmp_path / to)
    with pytest.raises(DataError, match=f"{link.name} is a link that leads out of its folder"):
        packing.pack_encoders([str(folder_encoder)], tmp_path / "packed")
    assert not (tmp_path / "packed").exists()
    link.unlink()
    link.symlink_to(folder_encoder / "config.json")
    packing.pack_encoders([str(folder_encoder)], tmp_path / "packed")
    assert (tmp_path / "packed" / "encoders" / "my $encoder" / "model.safetensors").is_file()


def test_an_encoder_with_known_bytes_is_packed_into_the_cache(encoder_mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_MIRROR", str(encoder_mirror))
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "here"))
    name = "moka-ai/m3e-small"
    assert packing.pack_encoders([name, "mini"], tmp_path) == [f"{name}: research only, no commercial use (its README)"]
    monkeypatch.delenv("DIALNB_MIRROR")
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    assert find_encoder(name).kind == "cache or mirror"


def test_a_run_shows_a_folder_by_its_name(folder_encoder, finished, tmp_path):
    folder = finished("x", encoder=str(folder_encoder))
    record = json.loads((folder / "run.json").read_text())
    assert record["parameters"]["encoder"] == record["set_by_hand"]["encoder"] == "my $encoder"
    (facts,) = record["encoders"]
    assert (facts["name"], facts["bundled"], list(facts["sha256"])) == ("my $encoder", False, ["model.safetensors"])
    assert set(pd.read_csv(folder / "results.csv")["encoder"]) == {"my $encoder"}
    assert run_name("toy", "smoke", encoder=str(folder_encoder)) == "toy-smoke-seed1-my-encoder"
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".csv", ".md", ".tex"):
            assert "some place" not in path.read_text(encoding="utf-8"), path.name


def bare_python(folder: Path) -> Path:
    """A Python that has torch and its usual company and nothing else: no pip, no papermill, no kernel."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in packing.usual_packages():
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        for top in {file.parts[0] for file in files if file.parts[0] != ".."}:
            source = Path(metadata.distribution(name).locate_file(top))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    return folder / "bin" / "python"


@pytest.mark.slow
def test_a_pack_runs_on_a_bare_machine_without_network_rights_or_installation(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(ROOT / "tests" / "toy", project)
    shutil.copy(ROOT / "tests" / "tiny.py", project)
    archive = tmp_path / "toy.tar"
    command = [
        sys.executable,
        "-m",
        "tools.pack",
        "toy",
        "--profile",
        "smoke",
        "--without",
        "umap-learn",
    ]
    packed = subprocess.run(
        [*command, "--project", str(project), "-o", str(archive)], capture_output=True, text=True, timeout=900, cwd=ROOT
    )
    assert packed.returncode == 0, packed.stderr
    assert f"MB for {packing.host_platform()}" in packed.stdout
    assert "Run it there: tar xf toy.tar && sh dialnb-pack/run.sh" in packed.stdout

    there = tmp_path / "there"
    there.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(there, filter="data")
    python = bare_python(tmp_path / "bare")
    clean = {"PATH": os.environ["PATH"], "HOME": str(there), "PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1"}
    lacks = subprocess.run([python, "-c", "import torch, papermill"], env=clean, capture_output=True, text=True)
    assert "No module named 'papermill'" in lacks.stderr
    run = ["sh", "dialnb-pack/run.sh"]
    done = subprocess.run(
        run, cwd=there, env={**clean, "PYTHON": str(python)}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((there / "dialnb-pack" / "runs" / "toy-smoke-seed1" / "run.json").read_text())
    assert record["status"] == "done" and record["code"]["commit"]
    assert (there / "dialnb-pack" / "runs" / "toy-smoke-seed1" / "results.csv").is_file()
