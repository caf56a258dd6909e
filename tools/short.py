"""Run the profile `gpu` of a paper to its end on a CPU: every model, table and figure, each training two steps long.

    python -m tools.short [PAPER ...] [--encoder mini] [--out FOLDER] [--print]

What comes out says that the profile works, and nothing about a paper. `--print` shows the commands and runs nothing.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

from dialnb.typed import show

TRAINING = {"max_steps": 2, "precision": "float32", "workers": 1}
CONTRAST = TRAINING | {"dialogues": 40, "batch_size": 16, "umap": False}
CONTRAST |= {f"train.{baseline}.max_steps": 2 for baseline in ("SimCSE-unsup", "TOD-BERT")}
POST = {"batch_size": 8, "epochs": 1}

SHORT = {
    "dse": CONTRAST
    | {"probe": 100, "probe_draws": 1, "long_dialogues": 20, "long_epochs": 2, "shots": [1], "seeds": [0, 1]}
    | {"finetune_seeds": [0], "action_seeds": [0], "action_shots": [1], "response_shots": [10], "limit": 50}
    | {"questions": 400, "groups": 8, "other_encoders": ["mini"], "plot_intents": 3, "plot_points": 10}
    | {"sweep_temperatures": [0.05], "sweep_batches": [16], "loss_forms": ["code"], "sweep_epochs": 1},
    "wmdc": CONTRAST
    | {"count_dialogues": 40, "limit": 20, "train_limit": 40, "groups": 10, "sweep_steps": 2, "windows": [1, 3]}
    | {"fractions": [0.5, 1.0], "sizes": ["mini"], "geometry_pairs": 12, "geometry_draws": 2, "plot_frequent": 12}
    | {"plot_rare": 40, "variants": ["window 3 alone"]},
    "ums": TRAINING
    | {
        "corpora": ["Ubuntu", "Douban"],
        "dialogues": 40,
        "train_groups": 40,
        "groups": 20,
        "dev_groups": 20,
        "probe": 20,
    }
    | {"max_length": 64, "batch_size": 8, "train.UMS.epochs": 1, "train.UMS on a sample.epochs": 1}
    | {f"train.{post}.{name}": n for post in ("next sentences", "replaced tokens") for name, n in POST.items()}
    | {"pretrain_steps": 2, "sentence_encoders": [], "adversaries": ["last"], "plot_dialogues": 20, "umap": False},
    "tadse": {
        "precision": "float32",
        "workers": 1,
        "raw_start": "as it comes",
        "corpus": "bundled",
        "baseline_steps": 2,
    }
    | {
        "train.TaDSE.steps": 2,
        "joined_steps": 2,
        "batch_size": 8,
        "batches": [4],
        "utterances": 40,
        "limit": 60,
        "references": 100,
    }
    | {
        "rates": [1e-5],
        "curve_datasets": ["SNIPS"],
        "curve_epochs": 1,
        "curve_utterances": 40,
        "folds": 2,
        "ks": [1, 3],
    }
    | {"ratios": [0, 0.5], "mistaken": [0.5], "poolings": ["mean"], "umap": False},
    "dialoguecse": TRAINING
    | {"dialogues": 20, "batch_size": 2, "sentences": 40, "head_steps": 1}
    | {"train.adaptation.batch_size": 8, "train.adaptation.max_steps": 2}
    | {"pretrain_batch": 8, "pretrain_steps": 2, "queries": 120, "limit": 5, "flow_steps": 3, "sweep_steps": 2}
    | {
        "temperatures": [0.1],
        "negative_counts": [1],
        "turn_counts": [1, 3],
        "dialogue_counts": [20],
        "step_counts": [2],
    }
    | {"plot_intents": 3, "plot_points": 12, "geometry_sentences": 100, "umap": False},
}
"""By paper: settings that make everything of the profile small."""


def command(paper: str, encoder: str, out: str = "") -> list[str]:
    """The command line of a short run."""
    words = [sys.executable, "-m", "dialnb", "run", paper, "--profile", "gpu", "--encoder", encoder]
    for name, value in SHORT[paper].items():
        words += ["--set", f"{name}={show(value) or '[]'}"]
    return [*words, *(["--out", out] if out else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", choices=[[], *SHORT], help="papers (default: all)")
    parser.add_argument("--encoder", default="mini")
    parser.add_argument("--out", default="", help="where runs are written (default: runs)")
    parser.add_argument("--print", action="store_true", dest="shown", help="show the commands and run nothing")
    given = parser.parse_args()
    codes = []
    for paper in given.papers or SHORT:
        words = command(paper, given.encoder, given.out)
        print(shlex.join(["python", *words[1:]]), flush=True)
        codes.append(0 if given.shown else subprocess.run(words).returncode)
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
