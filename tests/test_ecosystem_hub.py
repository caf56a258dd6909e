"""Cards with results that the hub reads, an upload to a hub of our own, and the recorded results as a dataset."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest
import tiny
from huggingface_hub import ModelCard, constants

from dialnb import cli
from dialnb.ecosystem import hub
from dialnb.files import read_rows
from dialnb.models.encoder import load_encoder
from dialnb.runs import start
from dialnb.training.stage import Result
from tools.dataset import write_dataset

ROOT = Path(__file__).resolve().parent.parent


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as an upload asks for; it keeps what it is given in ``server.files``."""

    def do_POST(self) -> None:
        content = self._body()
        self.server.asked.append(self.path)
        if self.path.endswith("/api/repos/create"):
            self._answer({"url": f"http://{self.headers['Host']}/me/toy", "id": "me/toy"})
        elif self.path.endswith("/api/validate-yaml"):
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = json.loads(content)["files"]
            modes = {f["path"]: "lfs" if f["size"] > self.server.large else "regular" for f in files}
            kinds = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            self._answer({"files": kinds})
        elif self.path.endswith(".git/info/lfs/objects/batch"):
            objects = json.loads(content)["objects"]
            for one in objects:
                one["actions"] = {
                    "upload": {"href": f"http://{self.headers['Host']}/lfs/{one['oid']}"},
                    "verify": {"href": f"http://{self.headers['Host']}/me/toy.git/info/lfs/verify"},
                }
            self._answer({"transfer": "basic", "objects": objects})
        elif self.path.endswith("/lfs/verify"):
            told = json.loads(content)
            right = len(self.server.stored[told["oid"]]) == told["size"]
            self._answer({}, 200 if right else 422)
        elif "/commit/" in self.path:
            for line in map(json.loads, content.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    self.server.pointed.add(line["value"]["path"])
                    self.server.files[line["value"]["path"]] = self.server.stored[line["value"]["oid"]]
            place = f"http://{self.headers['Host']}/me/toy/commit/{'0' * 40}"
            self._answer({"commitUrl": place, "commitOid": "0" * 40, "success": True})
        else:
            self._answer({"error": "Unauthorized"}, 401)

    def do_PUT(self) -> None:
        content, name = self._body(), self.path.rpartition("/")[2]
        right = hashlib.sha256(content).hexdigest() == name and self.server.accepts
        if right:
            self.server.stored[name] = content
        self._answer({}, 200 if right else 400)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self._answer({"id": "me/toy", "sha": "0" * 40, "siblings": []})

    def _body(self) -> bytes:
        if length := self.headers.get("Content-Length"):
            return self.rfile.read(int(length))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, value: dict, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        """Stay silent."""


@pytest.fixture
def local_hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.asked = {}, []
    server.stored, server.pointed, server.large, server.accepts = {}, set(), 10**9, True  # files above `large` go apart
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield server
    server.shutdown()
    server.server_close()


def make_encoder(seed: int) -> Result:
    return Result(tiny.encoder(seed=seed))


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A finished run with one model and its results: two seeds, two numbers of shots, and a floor."""
    monkeypatch.setenv("DIALNB_PROJECT", str(ROOT / "tests" / "toy"))
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    made = start("toy", "smoke", out=tmp_path / "run")
    made.stage("train Toy", make_encoder, seed=3)
    given = {"task": "toy", "dataset": "Words", "metric": "Accuracy", "n": 10}
    rows = [given | {"protocol": "paper", "seed": s, "shots": k, "value": 10.0 * k + s} for s in (1, 2) for k in (1, 5)]
    floor = given | {"protocol": "floor", "seed": 1, "shots": 1, "value": 3.0}
    made.add(pd.DataFrame([*rows, floor]), model="Toy", table="T1")
    made.finish()
    return made.folder


def test_an_exported_card_has_the_results_of_the_model_in_the_format_of_the_hub(run, tmp_path):
    assert cli.main(["export", str(run), "Toy", str(tmp_path / "model")]) == 0
    card = ModelCard.load(tmp_path / "model" / "README.md")
    found = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert found == {"Accuracy, protocol paper, shots 1": 11.5, "Accuracy, protocol paper, shots 5": 51.5}
    assert card.data.model_name == "Toy" and card.data.pipeline_tag == "sentence-similarity"
    assert "# " in card.text
    load_encoder(tmp_path / "model")  # its seal holds: the card may change


def test_export_with_push_uploads_the_whole_folder(run, tmp_path, local_hub, capsys):
    assert cli.main(["export", str(run), "Toy", str(tmp_path / "model"), "--push", "me/toy"]) == 0
    here = {path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*.*")}
    assert here <= set(local_hub.files) and "model.safetensors" in here
    for name, content in local_hub.files.items():
        assert content == (tmp_path / "model" / name).read_bytes(), name
    assert b"model-index" in local_hub.files["README.md"]
    assert "me/toy" in capsys.readouterr().out


def test_large_files_are_uploaded_apart_and_pointed_to(run, tmp_path, local_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    local_hub.large = 10_000
    assert cli.main(["export", str(run), "Toy", str(tmp_path / "model"), "--push", "me/toy"]) == 0
    sizes = {p.relative_to(tmp_path / "model").as_posix(): p.stat().st_size for p in (tmp_path / "model").rglob("*.*")}
    assert local_hub.pointed == {name for name, size in sizes.items() if size > local_hub.large}
    assert "model.safetensors" in local_hub.pointed and len(local_hub.pointed) < len(sizes)
    for name in sizes:
        assert local_hub.files[name] == (tmp_path / "model" / name).read_bytes(), name


def test_a_large_file_that_the_storage_refuses_is_a_sentence(tmp_path, local_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    local_hub.large, local_hub.accepts = 10_000, False
    with pytest.raises(hub.DataError, match="was not uploaded to me/toy: Error while uploading 'model"):
        hub.push(tiny.encoder().save(tmp_path / "tiny"), "me/toy")
    assert local_hub.files == {}


def test_an_upload_that_fails_or_is_forbidden_is_a_sentence(tmp_path, local_hub, monkeypatch, capsys):
    folder = tiny.encoder().save(tmp_path / "tiny")
    monkeypatch.setattr(Hub, "do_POST", lambda self: (self._body(), self._answer({"error": "Invalid token"}, 401)))
    with pytest.raises(hub.DataError, match="was not uploaded to me/toy: "):
        hub.push(folder, "me/toy")
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    with pytest.raises(hub.Offline, match="DIALNB_OFFLINE is set"):
        hub.push(folder, "me/toy")


def test_recorded_results_load_as_a_dataset_with_a_card(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    small = tmp_path / "project" / "papers"
    for slug in ("tadse", "ums"):
        place = small / slug / "results" / "gpu"
        place.mkdir(parents=True)
        for name in ("run.json", "claims.json"):
            (place / name).write_bytes((ROOT / "papers" / slug / "results" / "gpu" / name).read_bytes())
        rows = read_rows(ROOT / "papers" / slug / "results" / "gpu")
        rows.to_csv(place / "results.csv", index=False)
    card = write_dataset(tmp_path / "dataset", tmp_path / "project")
    loaded = datasets.load_dataset(str(card.parent), "ums", split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == len(rows) and {"task", "metric", "value", "n"} <= set(loaded.column_names)
    claims = pd.read_csv(tmp_path / "dataset" / "data" / "claims.csv")
    assert set(claims["slug"]) == {"tadse", "ums"} and claims["verdict"].notna().all()
    assert "license: apache-2.0" in card.read_text(encoding="utf-8")
