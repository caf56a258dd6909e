"""oneDNN's switch is the process's: passes of ours turn it on ARM for as long as they last, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from threading import Event, Thread

import numpy as np
import pytest
import tiny
import torch
from test_examples_manipulations import groups
from torch.backends import mkldnn

from dialnb.evaluation.finetuning import FineTuning, fit_classifier, in_batches
from dialnb.models import packed
from dialnb.models.selector import Selector
from dialnb.runs.stages import StageCache
from dialnb.training import TrainingSettings, train


def switch() -> bool:
    return mkldnn.enabled


@pytest.fixture
def arm(monkeypatch):
    """A process with oneDNN on a machine that says it is an ARM under Linux."""
    monkeypatch.setattr(packed, "machine", lambda: "aarch64")
    monkeypatch.setattr(mkldnn, "enabled", True)
    yield
    assert switch(), "the switch is as it was"


def test_an_import_leaves_the_switch_of_the_process():
    rooms = ("models.packed", "models.selector", "training.loop", "evaluation.finetuning", "runs.stages")
    imports = "; ".join(f"import dialnb.{room}" for room in rooms)
    code = f"from torch.backends import mkldnn; mkldnn.enabled = True; {imports}; assert mkldnn.enabled"
    subprocess.run([sys.executable, "-c", code], check=True)


def watched() -> tuple:
    """An encoder that notes the switch on the way there and on the way back."""
    encoder, seen = tiny.encoder(max_position_embeddings=80), {"there": [], "back": []}
    states = encoder.forward

    def forward(*given):
        seen["there"].append(switch())
        found = states(*given)
        if found.requires_grad:
            found.register_hook(lambda _: seen["back"].append(switch()))
        return found

    encoder.forward = forward
    return encoder, seen


def encoding(encoder) -> None:
    encoder.encode(tiny.TEXTS)


def scoring(encoder) -> None:
    Selector(encoder).score(groups(2))


def training(encoder) -> None:
    settings, examples = TrainingSettings(batch_size=8, max_steps=2), tiny.Everything(encoder, 16)
    train(encoder, tiny.objectives(encoder)["sum"], examples, settings, show_progress=False)


def tuning(encoder) -> None:
    rows, recipe = (encoder.tokenize(tiny.TEXTS), np.arange(len(tiny.TEXTS)) % 2), FineTuning(1e-3, 4, 1, 9, 1, 20)
    encoder.clone = lambda: encoder
    fit_classifier(encoder, rows, rows, lambda *_: 1.0, recipe)


def asking(encoder) -> None:
    in_batches(encoder.embed, encoder.tokenize(tiny.TEXTS))


@pytest.mark.parametrize("work", [encoding, scoring, training, tuning, asking])
def test_passes_of_ours_are_without_onednn_on_arm_both_ways(arm, work):
    encoder, seen = watched()
    work(encoder)
    assert seen["there"] and not any(seen["there"] + seen["back"])
    assert bool(seen["back"]) == (work in (training, tuning))


def test_a_stage_is_a_pass_of_ours(arm, tmp_path):
    assert StageCache(tmp_path).run("asked", switch, {})[0] is False


@pytest.mark.parametrize("work", [encoding, scoring, training, tuning, asking])
def test_a_pass_that_fails_leaves_the_switch_too(arm, work):
    def broken(*_):
        raise RuntimeError("no pass")

    encoder = tiny.encoder(max_position_embeddings=80)
    encoder.forward = broken
    with pytest.raises(RuntimeError, match="no pass"):
        work(encoder)


def test_other_machines_keep_onednn(arm, monkeypatch):
    monkeypatch.setattr(packed, "machine", lambda: "x86_64")
    encoder, seen = watched()
    encoding(encoder)
    assert seen["there"] == [True]


@pytest.mark.parametrize("work", [encoding, scoring])
def test_passes_in_bfloat16_keep_onednn_on_arm(arm, work):
    encoder = tiny.encoder(max_position_embeddings=80)
    encoder.dtype, seen, embed = torch.bfloat16, [], packed._embed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_embed", lambda *given: seen.append(switch()) or embed(*given))
        work(encoder)
    assert seen and all(seen)


def test_who_had_switched_it_off_finds_it_off(arm):
    mkldnn.enabled = False
    encoding(tiny.encoder())
    assert not switch()
    mkldnn.enabled = True


def test_the_last_of_several_threads_turns_it_back(arm):
    began, go_on = Event(), Event()

    @packed.small_products
    def slow() -> None:
        began.set()
        go_on.wait(60)

    thread = Thread(target=slow)
    with packed.small_products:
        thread.start()
        began.wait(60)
        encoding(tiny.encoder())
        assert not switch(), "a pass within a pass"
    assert not switch(), "the thread is not done"
    go_on.set()
    thread.join()


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_passes_without_gradient_give_what_those_with_it_give(activation, pooling):
    encoder = tiny.encoder(hidden_act=activation, intermediate_size=32)  # as wide as the stream
    tokens = encoder.tokenize(tiny.TEXTS)
    with torch.no_grad():
        found = encoder.embed(tokens, pooling)
    assert torch.equal(found, encoder.embed(tokens, pooling).detach())
