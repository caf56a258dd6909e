"""Two and four real processes give the gradient of one, to nine digits, for every objective."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest
import tiny
import torch
import training_worker as worker
from processes import Process
from safetensors.torch import load_file

from dialnb.training import train

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=[2, 4])
def together(request, tmp_path_factory):
    """What ``request.param`` processes found: gradients by case, and remarks."""
    folder = tmp_path_factory.mktemp(f"processes-{request.param}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    count, group = request.param, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": request.param}
    ranks = [group | {"RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count} for rank in range(count)]
    started = [Process(folder / f"words-{i}", worker.one_of_several, folder, **rank) for i, rank in enumerate(ranks)]
    assert [process.wait() for process in started] == [0] * count, started[0].said()[-4000:]
    said = json.loads((folder / "said.json").read_text())
    assert said["processes"] == request.param
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, gradient in load_file(folder / "gradients.safetensors").items():
        case, _, key = name.partition("|")
        found.setdefault(case, {})[key] = gradient
    return found, said


@pytest.fixture(scope="module")
def alone():
    encoder = tiny.encoder(dropout=0.0)
    examples = tiny.Everything(encoder, worker.EXAMPLES)
    return {
        name: tiny.gradient(encoder, objective, examples, settings, step)
        for name, objective, settings, step in worker.cases(encoder)
    }


def test_the_gradient_and_the_loss_are_those_of_one_process(together, alone):
    found, said = together
    assert len(alone) == 27
    for case, (loss, gradient) in alone.items():
        assert said["losses"][case] == pytest.approx(loss, rel=1e-12), case
        assert all(g.dtype == torch.float64 for g in found[case].values())
        assert tiny.relative_error(found[case], gradient) < 1e-9, case


def test_a_gather_without_gradient_would_have_been_noticed(together, alone):
    found, _ = together
    assert tiny.relative_error(found["naive"], alone["nt_xent, step 0"][1]) > 0.05


def test_a_whole_run_ends_where_one_process_ends_whatever_the_others_heads_started_from(together):
    found, said = together
    encoder = tiny.encoder(dropout=0.0)
    objective, examples = tiny.objectives(encoder, seed=0)["sum"], tiny.Everything(encoder, worker.EXAMPLES)
    before = encoder.encode(tiny.TEXTS)
    train(encoder, objective, examples, worker.settings(epochs=2, learning_rate=1e-4), show_progress=False)
    after = encoder.encode(tiny.TEXTS)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(found["trained"][""], after, atol=2e-6)
    assert said["spread"] == 0


def test_a_ctrl_c_in_one_process_stops_all_after_the_same_step(together):
    _, said = together
    assert all(said["stopped"])
    assert said["kept"] == "step-00000003"
