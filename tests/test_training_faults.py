"""Things go wrong: killed, interrupted, full disk, not a number, foreign or broken checkpoints. Nothing is lost."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import tiny
import torch
import training_worker as worker
from processes import Process
from safetensors import SafetensorError

from dialnb.errors import TrainingError
from dialnb.training import TrainingSettings, checkpoint, train
from dialnb.training.loop import _Run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def undisturbed():
    """Encoder, heads and curve of a run that nothing happened to."""
    return worker.training(tiny.Pairs, None)


def assert_same_run(found, expected):
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
            assert torch.equal(a, b), name
    assert found[2].curve.equals(expected[2].curve)


def start(folder: Path) -> Process:
    return Process(folder.with_name("words"), worker.slowly, folder)


def wait_for(folder: Path, step: int, process: Process) -> None:
    """Until the checkpoint of ``step`` is there (polling; a later one will do)."""
    end = time.monotonic() + 900
    while (kept := checkpoint.latest_checkpoint(folder)) is None or int(kept.name[5:]) < step:
        assert process.poll() is None and time.monotonic() < end, process.said()
        time.sleep(0.005)


# --- killed and interrupted -------------------------------------------------------------------------------------------


def test_a_killed_then_interrupted_run_ends_with_the_same_bits(tmp_path, undisturbed):
    folder = tmp_path / "run"
    process = start(folder)
    wait_for(folder, 3, process)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    killed_at = int(checkpoint.latest_checkpoint(folder).name[5:])
    assert 3 <= killed_at < 12

    process = start(folder)
    wait_for(folder, killed_at + 2, process)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait() == 1 and "KeyboardInterrupt" in process.said()
    stopped_at = int(checkpoint.latest_checkpoint(folder).name[5:])
    assert killed_at + 2 <= stopped_at < 12
    assert f"stopped after step {stopped_at} of 12; start the same run again and it goes on there" in process.said()

    found = worker.training(tiny.Pairs, folder)
    assert found[2].resumed_at == stopped_at
    assert_same_run(found, undisturbed)


class Death(BaseException):
    """The process is gone: no handler of the program runs."""


@pytest.mark.parametrize("moment", range(7))
@pytest.mark.parametrize("step", [1, 7])
def test_death_at_any_moment_of_saving_loses_nothing(tmp_path, monkeypatch, undisturbed, step, moment):
    """Every operation on the disk may be the last one: before and after the weights, the notes, the swap, the sweep."""
    saves, operations = 0, 0
    save, rename, remove, sync = checkpoint.save_file, Path.replace, shutil.rmtree, checkpoint._sync

    def mortal(operation):
        def wrapper(*arguments, **options):
            nonlocal operations
            if saves == step:
                if operations == moment:
                    raise Death
                operations += 1
            return operation(*arguments, **options)

        return wrapper

    def counted(*arguments, **options):
        nonlocal saves
        saves += 1
        return mortal(save)(*arguments, **options)

    monkeypatch.setattr(checkpoint, "save_file", counted)
    monkeypatch.setattr(checkpoint, "_sync", mortal(sync))
    monkeypatch.setattr(Path, "replace", mortal(rename))
    monkeypatch.setattr(shutil, "rmtree", mortal(remove))
    with pytest.raises(Death):
        worker.training(tiny.Pairs, tmp_path)
    monkeypatch.undo()
    found = worker.training(tiny.Pairs, tmp_path)
    swapped = moment >= 5  # save, sync, sync, sync, swap, sync of the folder, sweep
    assert found[2].resumed_at == step - (0 if swapped else 1)
    assert_same_run(found, undisturbed)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000012"]


def test_weights_heads_and_draws_of_a_resumed_run_are_those_of_its_checkpoint(tmp_path, undisturbed):
    """Nothing hangs on what the second process starts with: other weights, other heads, another random state."""

    def die(*_):
        raise Death

    with pytest.raises(Death):
        worker.training(tiny.Pairs, tmp_path, on_epoch=die)
    encoder = tiny.encoder(dropout=0.1, seed=8)
    objective, examples = tiny.Pairs(encoder.dim), tiny.Everything(encoder, 30, redrawn=True)
    result = train(encoder, objective, examples, worker.RUN, tmp_path, show_progress=False)
    assert result.resumed_at == 4
    assert_same_run((encoder, objective, result), undisturbed)


def test_a_finished_run_is_not_run_again(tmp_path, undisturbed):
    worker.training(tiny.Pairs, tmp_path)
    epochs = []
    found = worker.training(tiny.Pairs, tmp_path, on_epoch=lambda epoch, _: epochs.append(epoch))
    assert found[2].resumed_at == 12 and epochs == [3]
    assert_same_run(found, undisturbed)


def test_ctrl_c_saves_once_and_the_curve_has_no_hole(tmp_path, undisturbed, capsys):
    class Pressed(tiny.Pairs):
        def embed(self, encoder, batch):
            if not (tmp_path / "pressed").exists() and (tmp_path / "step-00000004").exists():
                (tmp_path / "pressed").touch()
                os.kill(os.getpid(), signal.SIGINT)
            return super().embed(encoder, batch)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        worker.training(Pressed, tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert "stopped after step 5 of 12" in capsys.readouterr().out
    _, facts = checkpoint.load_checkpoint(checkpoint.latest_checkpoint(tmp_path))
    assert [row["step"] for row in facts["curve"]] == [1, 2, 3, 4, 5]
    assert_same_run(worker.training(Pressed, tmp_path), undisturbed)


def test_ctrl_c_without_a_folder_says_that_nothing_was_saved(capsys):
    class Pressed(tiny.Pairs):
        def embed(self, encoder, batch):
            os.kill(os.getpid(), signal.SIGINT)
            return super().embed(encoder, batch)

    with pytest.raises(KeyboardInterrupt):
        worker.training(Pressed, None)
    assert "nothing was saved: no folder was given" in capsys.readouterr().out


def test_an_epoch_whose_evaluation_died_is_announced_again(tmp_path):
    epochs = []

    def once(epoch, _):
        epochs.append(epoch)
        if epochs == [1, 2]:
            raise Death

    with pytest.raises(Death):
        worker.training(tiny.Pairs, tmp_path, on_epoch=once)
    worker.training(tiny.Pairs, tmp_path, on_epoch=once)
    assert epochs == [1, 2, 2, 3]


# --- not a number -----------------------------------------------------------------------------------------------------

SETTINGS = TrainingSettings(batch_size=8, epochs=3, learning_rate=1e-3, checkpoint_every=1)


def test_a_loss_that_is_not_a_number_stops_before_it_reaches_the_weights(tmp_path):
    encoder = tiny.encoder()
    objective = tiny.objectives(encoder)["weighted_symmetric"]
    poisoned = int(
        _Run(encoder, objective, tiny.Everything(encoder, 30), SETTINGS, None, None, "", False).plan.rows(2)[5]
    )
    examples = tiny.Everything(encoder, 30, poison=poisoned)
    with pytest.raises(TrainingError, match="the loss became nan at step 3 of 12") as caught:
        train(encoder, objective, examples, SETTINGS, tmp_path, show_progress=False)
    assert "step-00000002 is from before it" in str(caught.value)
    tensors, facts = checkpoint.load_checkpoint(checkpoint.latest_checkpoint(tmp_path))
    assert facts["step"] == 2 and all(t.isfinite().all() for t in tensors.values())
    for name, parameter in encoder.named_parameters():  # nor did it reach the weights in memory
        assert torch.equal(parameter, tensors[f"encoder.{name}"])


def test_without_a_folder_the_sentence_is_all():
    encoder = tiny.encoder()
    objective = tiny.objectives(encoder)["weighted_symmetric"]
    with pytest.raises(TrainingError, match="Usual causes: a learning rate that is too high"):
        train(encoder, objective, tiny.Everything(encoder, 30, poison=0), SETTINGS, show_progress=False)


def test_weights_that_overflow_are_never_saved(tmp_path):
    class Exploding(tiny.Pairs):
        """A finite loss with an infinite gradient, in the third step."""

        calls = 0

        def loss(self, vectors):
            self.calls += 1
            extra = (vectors["first"].sum() * 0).sqrt() if self.calls == 3 else 0
            return super().loss(vectors) + extra

    encoder = tiny.encoder()
    with pytest.raises(TrainingError, match="weights became NaN or infinite in step 3"):
        train(encoder, Exploding(32), tiny.Everything(encoder, 30), SETTINGS, tmp_path, show_progress=False)
    tensors, facts = checkpoint.load_checkpoint(checkpoint.latest_checkpoint(tmp_path))
    assert facts["step"] == 2 and all(t.isfinite().all() for t in tensors.values())


# --- disks and checkpoints --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space left on device")]
)
def test_a_full_disk_leaves_the_previous_checkpoint_whole(tmp_path, monkeypatch, undisturbed, failure):
    save, calls = checkpoint.save_file, []

    def fill(tensors, path):
        calls.append(path)
        if len(calls) == 4:
            path.write_bytes(b"the first half of")
            raise failure
        save(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", fill)
    with pytest.raises(TrainingError, match=r"step-00000003, is whole.*Free some space"):
        worker.training(tiny.Pairs, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]
    found = worker.training(tiny.Pairs, tmp_path)
    assert found[2].resumed_at == 3
    assert_same_run(found, undisturbed)


def test_a_disk_that_was_always_full_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "save_file", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space")))
    with pytest.raises(TrainingError, match="there was none before"):
        worker.training(tiny.Pairs, tmp_path)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    encoder = tiny.encoder()
    examples, objective = tiny.Everything(encoder, 30), tiny.objectives(encoder)["hard_negative"]
    train(encoder, objective, examples, SETTINGS, tmp_path, show_progress=False)
    electra = tiny.encoder("electra")
    for other in (
        (
            encoder,
            objective,
            examples,
            TrainingSettings(batch_size=8, epochs=3, learning_rate=2e-3, checkpoint_every=1),
        ),
        (encoder, tiny.objectives(encoder)["plain"], examples, SETTINGS),
        (encoder, objective, tiny.Everything(encoder, 31), SETTINGS),
        (electra, tiny.objectives(electra)["hard_negative"], examples, SETTINGS),
    ):
        with pytest.raises(
            TrainingError, match=r"belongs to a run with other settings.*delete this one to start afresh"
        ):
            train(*other, tmp_path, show_progress=False)


def flipped(content: bytes, place: int) -> bytes:
    """The same bytes but for one bit."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "state.sha256"])
@pytest.mark.parametrize("damage", ["a bit at the end", "a bit in the middle", "cut", "empty", "gone"])
def test_a_damaged_checkpoint_is_said_and_training_begins_again(tmp_path, capsys, undisturbed, file, damage):
    worker.training(tiny.Pairs, tmp_path)
    path = tmp_path / "step-00000012" / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        places = {"a bit at the end": -2, "a bit in the middle": len(content) // 2}
        cut = content[: len(content) // 2 if damage == "cut" else 0]
        path.write_bytes(flipped(content, places[damage] % len(content)) if damage in places else cut)
    found = worker.training(tiny.Pairs, tmp_path)
    assert found[2].resumed_at == 0
    assert "step-00000012 is damaged" in capsys.readouterr().out
    assert_same_run(found, undisturbed)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path, monkeypatch, undisturbed):
    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda *_, **__: None)
    worker.training(tiny.Pairs, tmp_path)
    monkeypatch.undo()
    assert len(checkpoint.checkpoints(tmp_path)) > 1
    path = checkpoint.latest_checkpoint(tmp_path) / "state.safetensors"
    path.write_bytes(flipped(path.read_bytes(), -1 % path.stat().st_size))
    found = worker.training(tiny.Pairs, tmp_path)
    assert found[2].resumed_at == 11
    assert_same_run(found, undisturbed)


def test_a_checkpoint_holds_no_pickle(tmp_path):
    worker.training(tiny.Pairs, tmp_path)
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"state.safetensors", "state.json", "state.sha256"}


# --- batches ----------------------------------------------------------------------------------------------------------


def test_an_error_while_building_a_batch_reaches_the_caller():
    encoder = tiny.encoder()
    examples = tiny.Everything(encoder, 30)
    build = examples.batch

    def broken(rows, rng):
        if 7 in rows:
            raise KeyError("no such slot")
        return build(rows, rng)

    examples.batch = broken
    with pytest.raises(KeyError, match="no such slot"):
        train(encoder, tiny.objectives(encoder)["plain"], examples, SETTINGS, show_progress=False)


def test_too_few_examples_are_refused_before_anything_is_changed():
    encoder = tiny.encoder()
    with pytest.raises(TrainingError, match="nothing to train on"):
        train(encoder, tiny.objectives(encoder)["plain"], tiny.Everything(encoder, 1), SETTINGS, show_progress=False)
    assert not encoder.training
