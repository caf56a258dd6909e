"""Folders of encoders that are almost right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from dialnb.models.encoder import load_encoder
from dialnb.models.places import BUNDLED, INDEX, MODULES, PROMPTS
from tools.audit.outcomes import SOUND, WRONG, Family, Tried, tried

Change = Callable[[Path], object]
Tensors = dict[str, torch.Tensor]

MINI = BUNDLED / "mini"
TEXTS = ["book a table", "", "i need a taxi to the station"]


def json_with(name: str, **values: Any) -> Change:
    """A change of a JSON file; None takes a key away."""

    def change(folder: Path) -> None:
        fields = json.loads((folder / name).read_text("utf-8")) | values
        write(folder, name, json.dumps({key: value for key, value in fields.items() if value is not None}))

    return change


def text_in(name: str, text: str | bytes) -> Change:
    return lambda folder: write(folder, name, text)


def write(folder: Path, name: str, text: str | bytes) -> None:
    """Put a file in the place of a link."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)


def without(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def a_folder(name: str) -> Change:
    return lambda folder: (folder / name).mkdir()


def a_pickle(name: str) -> Change:
    def change(folder: Path) -> None:
        torch.save({}, folder / name)

    return change


def wordpieces(*words: str) -> dict[str, Any]:
    """The part of a tokenizer that holds its words."""
    more = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    vocabulary = {word: number for number, word in enumerate(words)}
    return {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary} | more


def both(first: Change, second: Change) -> Change:
    return lambda folder: (first(folder), second(folder))


def tensors_with(change: Callable[[Tensors], Tensors]) -> Change:
    """A change of the tensors of the weights, by name."""

    def apply(folder: Path) -> None:
        tensors = {name: tensor.contiguous() for name, tensor in change(load_file(MINI / "model.safetensors")).items()}
        (folder / "model.safetensors").unlink()
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return apply


def sharded(files: Any, shard: str = "model-1.safetensors") -> Change:
    """Weights under another name, and an index that names them."""

    def apply(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        shutil.copy(MINI / "model.safetensors", folder / shard)
        if shard.endswith(".bin"):
            torch.save(load_file(MINI / "model.safetensors"), folder / shard)
        write(folder, INDEX, json.dumps({"metadata": {}, "weight_map": files}))

    return apply


def only(word: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if word not in name}


CONFIG, TOKENIZER, NAMES = "config.json", "tokenizer.json", list(load_file(MINI / "model.safetensors"))
HUGE = 10**12

SAME: dict[str, Change] = {
    "as it is": lambda folder: None,
    "names as of a model with heads": tensors_with(lambda old: {f"bert.{name}": old[name] for name in old}),
    "with a head for masked words": tensors_with(
        lambda old: old | {"cls.predictions.bias": torch.zeros(8192), "cls.seq_relationship.weight": torch.ones(2, 256)}
    ),
    "with numbered positions": tensors_with(lambda old: old | {"embeddings.position_ids": torch.arange(512)[None]}),
    "without the pooler": tensors_with(only("pooler")),
    "in shards": sharded(dict.fromkeys(NAMES, "model-1.safetensors")),
    "asks for attention of a hub": json_with(CONFIG, attn_implementation="kernels-community/flash-attn"),
    "asks for attention of a hub, inside": json_with(CONFIG, _attn_implementation="kernels-community/flash-attn"),
    "asks for other weights": json_with(CONFIG, transformers_weights="adapter_model.bin"),
    "has code of its own": json_with(CONFIG, auto_map={"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}),
    "an adapter of another model": text_in("adapter_config.json", json.dumps({"base_model_name_or_path": "/nowhere"})),
    "a pickle beside the weights": text_in("pytorch_model.bin", b"\x80\x04canary."),
    "a distributed checkpoint beside the weights": text_in(".metadata", b"\x80\x04canary."),
}
"""Oddities with which an encoder gives the vectors that it always gave."""

ODD: dict[str, Change] = {
    # weights
    "tensors renamed": tensors_with(lambda old: {f"x.{name}": old[name] for name in old}),
    "one layer missing": tensors_with(only(".layer.2.")),
    "one tensor missing": tensors_with(only("layer.1.output.dense.bias")),
    "no word vectors": tensors_with(only("word_embeddings")),
    "one layer more": tensors_with(
        lambda old: old | {n.replace(".3.", ".4."): old[n].clone() for n in old if ".3." in n}
    ),
    "no tensors": tensors_with(lambda old: {}),
    "a tensor of another shape": tensors_with(lambda old: old | {NAMES[0]: torch.zeros(3)}),
    "a tensor transposed": tensors_with(
        lambda old: {n: t.T if "intermediate.dense.w" in n else t for n, t in old.items()}
    ),
    "a tensor without size": tensors_with(lambda old: old | {NAMES[0]: torch.zeros(())}),
    "a tensor without elements": tensors_with(lambda old: old | {NAMES[4]: torch.zeros(0, 256)}),
    "a second transformer": tensors_with(lambda old: old | {f"other.{name}": old[name].clone() for name in old}),
    "weights are no numbers": tensors_with(lambda old: old | {NAMES[0]: torch.full((256,), torch.nan)}),
    "quantised": tensors_with(
        lambda old: (
            {n: t.mul(100).to(torch.int8) if t.ndim == 2 else t for n, t in old.items()}
            | {"encoder.layer.0.output.dense.SCB": torch.ones(256)}
        )
    ),
    "weights are empty": text_in("model.safetensors", ""),
    "weights are text": text_in("model.safetensors", "weights"),
    "weights are cut": text_in("model.safetensors", (MINI / "model.safetensors").read_bytes()[:100_000]),
    "weights with a header of 2 EB": text_in("model.safetensors", b"\xff" * 8 + b"{}"),
    "weights with a broken header": text_in("model.safetensors", (2).to_bytes(8, "little") + b"[]"),
    "weights are missing": without("model.safetensors"),
    "weights are a folder": both(without("model.safetensors"), a_folder("model.safetensors")),
    "weights are a pickle": both(without("model.safetensors"), a_pickle("pytorch_model.bin")),
    # shards
    "an index that names a pickle": sharded(dict.fromkeys(NAMES, "model-1.bin"), "model-1.bin"),
    "an index that names a file elsewhere": sharded(dict.fromkeys(NAMES, str(MINI / "model.safetensors"))),
    "an index that leads upwards": sharded(dict.fromkeys(NAMES, "../model.safetensors")),
    "an index without its shard": sharded(dict.fromkeys(NAMES, "model-2.safetensors")),
    "an index of nothing": sharded({}),
    "an index that is a list": sharded(["model-1.safetensors"]),
    "an index of numbers": sharded(dict.fromkeys(NAMES, 1)),
    "an index that is no JSON": both(without("model.safetensors"), text_in(INDEX, "{")),
    # config.json
    "config is empty": text_in(CONFIG, ""),
    "config is no JSON": text_in(CONFIG, "{"),
    "config is a list": text_in(CONFIG, "[1]"),
    "config is a number": text_in(CONFIG, "3"),
    "config is null": text_in(CONFIG, "null"),
    "config is an empty object": text_in(CONFIG, "{}"),
    "config is nested deeply": text_in(CONFIG, '{"a":' * 20_000 + "1" + "}" * 20_000),
    "config is bytes": text_in(CONFIG, b"\xff\xfe\x00"),
    "config within a config": text_in(
        CONFIG, json.dumps({"model_type": "bert", "text_config": json.loads((MINI / "config.json").read_text("utf-8"))})
    ),
    **{
        f"{key} is {str(value)[:24] or 'empty'}": json_with(CONFIG, **{key: value})
        for key, values in {
            "model_type": (
                "gpt2",
                "electra",
                "t5",
                "distilbert",
                "mpnet",
                "clip",
                "vit",
                "whisper",
                "none such",
                "",
                3,
                ["bert"],
            ),
            "num_hidden_layers": (0, -1, 3, 5, 200, 10**6, HUGE, "4", 4.5, [4], {}, True),
            "hidden_size": (0, -1, 255, 128, HUGE, "256", [256]),
            "num_attention_heads": (0, -4, 3, HUGE, "4", [4]),
            "intermediate_size": (0, -1, 1000, HUGE, "1024"),
            "vocab_size": (0, -1, 100, 8191, 8193, HUGE, "8192", [8192]),
            "max_position_embeddings": (0, -1, 10, 513, HUGE, "512"),
            "type_vocab_size": (0, 1, HUGE, "2"),
            "hidden_act": ("none such", "", 3, ["gelu"], {}),
            "layer_norm_eps": ("small", [1], -1e9, 1e400),
            "hidden_dropout_prob": (2.0, -1, "x"),
            "pad_token_id": (-1, 10**9, "x", [0]),
            "is_decoder": (1, "yes"),
        }.items()
        for value in values
    },
    "quantization_config of nobody": json_with(CONFIG, quantization_config={"quant_method": "none such"}),
    "quantization_config is a list": json_with(CONFIG, quantization_config=[1]),
    "architectures is a number": json_with(CONFIG, architectures=3),
    # tokenizer
    "tokenizer is empty": text_in(TOKENIZER, ""),
    "tokenizer is no JSON": text_in(TOKENIZER, "{"),
    "tokenizer is an empty object": text_in(TOKENIZER, "{}"),
    "tokenizer is a list": text_in(TOKENIZER, "[]"),
    "tokenizer is missing": without(TOKENIZER),
    "tokenizer's config is empty": text_in("tokenizer_config.json", ""),
    "tokenizer's config is a list": text_in("tokenizer_config.json", "[]"),
    "tokenizer's class is unknown": json_with("tokenizer_config.json", tokenizer_class="NoneSuch"),
    "tokenizer's class is a number": json_with("tokenizer_config.json", tokenizer_class=3),
    "tokenizer reads 0 tokens": json_with("tokenizer_config.json", model_max_length=0),
    "tokenizer reads -1 tokens": json_with("tokenizer_config.json", model_max_length=-1),
    "tokenizer reads many tokens": json_with("tokenizer_config.json", model_max_length="many"),
    "tokenizer without words": json_with(TOKENIZER, model=wordpieces()),
    "tokenizer of two words": json_with(TOKENIZER, model=wordpieces("a", "[UNK]")),
    "ids above the word vectors": json_with(
        TOKENIZER, model=wordpieces("[UNK]", "b") | {"vocab": {"[UNK]": 0, "a": 9000}}
    ),
    "no token for unknown words": json_with(TOKENIZER, model=wordpieces("a", "b")),
    # how a text becomes one vector
    **{
        f"{name} is {content[:20]}": text_in(name, content)
        for name in (MODULES, "sentence_bert_config.json", PROMPTS)
        for content in ("", "{", "3", '"x"', "[1]", "null", '[{"type": 3}]', '{"max_seq_length": "x"}')
    },
    "prompts are a list": text_in(
        "config_sentence_transformers.json", '{"default_prompt_name": "a", "prompts": ["a"]}'
    ),
    "prompt is a list": text_in("config_sentence_transformers.json", '{"default_prompt_name": ["a"], "prompts": {}}'),
    "length is huge": text_in("sentence_bert_config.json", json.dumps({"max_seq_length": HUGE})),
    "length is 1": text_in("sentence_bert_config.json", '{"max_seq_length": 1}'),
    "length is 0": text_in("sentence_bert_config.json", '{"max_seq_length": 0}'),
    "hashes are a list": text_in("hashes.json", "[1]"),
    "hashes are no JSON": text_in("hashes.json", "{"),
    "hashes are numbers": text_in("hashes.json", '{"config.json": 3}'),
    "hashes of a file elsewhere": text_in("hashes.json", '{"../../x": "00"}'),
}
"""Oddities after which an encoder is refused, or gives finite vectors where nothing is wrong with what is read."""


def encoder_folder(folder: Path, case: str) -> Path:
    """A copy of `mini`, without its hashes and with one oddity; what is not changed is a link."""
    made = folder / "".join(letter if letter.isalnum() else "-" for letter in case)
    made.mkdir()
    for path in MINI.iterdir():
        if path.name != "hashes.json":
            (made / path.name).symlink_to(path)
    (SAME | ODD)[case](made)
    return made


def odd_encoder(folder: Path, case: str) -> Tried:
    """What becomes of a folder: the vectors of `mini`, finite ones, or a sentence."""
    place = encoder_folder(folder, case)
    expected = load_encoder(MINI, device="cpu").encode(TEXTS) if case in SAME else None

    def outcome(vectors: np.ndarray) -> str:
        right = np.isfinite(vectors).all() if expected is None else np.allclose(vectors, expected, atol=1e-6)
        return SOUND if right else WRONG

    return tried(case, lambda: load_encoder(place, device="cpu").encode(TEXTS), outcome)


def odd_encoders(folder: Path) -> Iterator[Tried]:
    """Encoder folders that are almost right."""
    return (odd_encoder(folder, case) for case in (*SAME, *ODD))


FAMILIES: tuple[Family, ...] = (odd_encoders,)
