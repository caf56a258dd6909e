"""Encoder folders that plain ``AutoModel``, ``SentenceTransformer`` and ``dialnb.load_encoder`` all read.

A folder says how a text becomes one vector (length, prompt, pooling, normalisation) in the files of
sentence-transformers, and in ``hashes.json`` what its own files are.
"""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import torch as safetensors_torch
from torch import Tensor

from dialnb.errors import DataError, DialnbError, in_words
from dialnb.files import Values, make_folder, read_json, sha256, write_json, writing
from dialnb.models.places import CARD, INDEX, LENGTHS, MODULES, POOLING, PROMPTS, WEIGHTS

HASHES = "hashes.json"
FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
KINDS = ("Transformer", "Pooling", "Normalize")
"""The modules of sentence-transformers that dialnb knows, in the order in which a text passes through them."""
LISTED: list[Values] = [
    {
        "idx": number,
        "name": str(number),
        "path": f"{number}_{kind}" if number else "",
        "type": f"sentence_transformers.models.{kind}",
    }
    for number, kind in enumerate(KINDS)
]
"""How `modules.json` lists them."""


def save_encoder(encoder, folder: Path, card: str | None = None, dtype: torch.dtype | None = None) -> Path:
    """Write everything into a temporary folder beside ``folder``, then swap it in; nothing half-written is seen.

    ``dtype`` narrows the stored weights (float16 halves the file); the configuration keeps float32, so that every
    reader widens them again.
    """
    if encoder.pooling == "pooler":
        raise DataError(
            "an encoder with pooling='pooler' has no sentence-transformers layout; save it with 'cls' or 'mean'"
        )
    check_place(folder)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    old = folder.with_name(f".{folder.name}-old")
    try:
        with writing(folder):
            _write(encoder, draft, card, dtype)
        draft.chmod(0o755)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.replace(old)
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.replace(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
    return folder


def check_place(folder: Path) -> None:
    """Refuse a place where no encoder can be written, or where something else lies that would be lost."""
    if folder.exists() and not (folder / MODULES).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder} holds something that is not an encoder, and would be replaced; name another folder")
    make_folder(folder.parent)


def _write(encoder, folder: Path, card: str | None, dtype: torch.dtype | None) -> None:
    config = encoder.transformer.config
    config.architectures = [type(encoder.transformer).__name__]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    weights = folder / WEIGHTS
    safetensors_torch.save_file(_stored(encoder.transformer, dtype), weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    encoder.tokenizer.save_pretrained(folder)
    prompts: Values = {"similarity_fn_name": "cosine", "prompts": {}}
    if encoder.prompt:
        prompts |= {"prompts": {"text": encoder.prompt}, "default_prompt_name": "text"}
    pooling = {flag: encoder.pooling == name for flag, name in FLAGS.items()}
    (folder / POOLING).parent.mkdir()
    write_json(folder / POOLING, {"word_embedding_dimension": encoder.dim, **pooling, "include_prompt": True})
    write_json(folder / MODULES, LISTED if encoder.normalize else LISTED[:2])
    write_json(folder / LENGTHS[0], {"max_seq_length": encoder.length, "do_lower_case": False})
    write_json(folder / PROMPTS, prompts)
    (folder / CARD).write_text(card or _plain_card(encoder), encoding="utf-8")
    seal(folder)


def _stored(transformer, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Every tensor once: tied ones are written under their first name."""
    tensors, seen = {}, set()
    for name, tensor in transformer.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor.detach().to("cpu", dtype).contiguous()
    return tensors


def read_readout(folder: Path, pooling: str | None = None) -> tuple[Values, bool]:
    """What a folder says in the files of sentence-transformers, as an `Encoder` takes it, and whether it wants texts in
    lower case; what dialnb cannot do is refused.

    ``pooling`` overrules everything that follows the transformer.
    """
    normalize, reads_prompt = False, True
    if pooling is None:
        pooling, normalize, reads_prompt = _read_modules(folder)
    sizes: dict[str, Any] = next(
        (read_stored(folder / name, dict) for name in LENGTHS if (folder / name).is_file()), {}
    )
    length = sizes.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise DataError(f"{folder} says max_seq_length {length!r}, expected a number of tokens")
    prompts = read_stored(folder / PROMPTS, dict)
    prompt: Any = ""
    wanted = prompts.get("default_prompt_name")
    if wanted is not None:
        prompt = (prompts.get("prompts") or {}).get(wanted)
        if not isinstance(prompt, str):
            raise DataError(f"{folder / PROMPTS} names the prompt {wanted!r}, but has no such prompt")
    if prompt and not reads_prompt:
        raise DataError(f"{folder} leaves its prompt {prompt!r} out when it pools, which dialnb cannot: pass pooling=")
    readout = {"pooling": pooling or "mean", "length": length, "normalize": normalize, "prompt": prompt}
    return readout, bool(sizes.get("do_lower_case"))


def _read_modules(folder: Path) -> tuple[str | None, bool, bool]:
    """Of a folder that follows the transformer with pooling and normalisation and nothing else: how it pools, whether
    it normalises, and whether the prompt is pooled too."""
    listed = read_stored(folder / MODULES, list) or LISTED[: 2 if (folder / POOLING).is_file() else 1]
    try:
        kinds = [str(part["type"]).rpartition(".")[2] for part in listed]
        places = [str(part["path"]) for part in listed]
    except (TypeError, KeyError):
        raise DataError(f"{folder / MODULES} is not a list of modules with a type and a path each") from None
    if tuple(kinds) != KINDS[: len(kinds)]:
        raise DataError(
            f"{folder / MODULES} asks for {', then '.join(kinds)}, but dialnb knows a Transformer, then Pooling, then "
            "Normalize: pass pooling= to take the transformer without the rest"
        )
    if len(kinds) == 1:
        return None, False, True
    if places[1] != Path(places[1]).name:
        raise DataError(f"{folder / MODULES} looks for its pooling in {places[1]!r}, which is no folder within it")
    path = folder / places[1] / "config.json"
    config = read_stored(path, dict)
    wanted = [FLAGS.get(key, key) for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
    if mode := config.get("pooling_mode"):  # the newer way to say it
        wanted = mode if isinstance(mode, list) else [mode]
    if len(wanted) != 1 or wanted[0] not in FLAGS.values():
        asked = " and ".join(map(str, wanted)) or "nothing"
        raise DataError(f"{path} asks for {asked}, but dialnb pools by one of mean, cls and max: choose a pooling")
    return wanted[0], "Normalize" in kinds, config.get("include_prompt", True)


def seal(folder: Path) -> None:
    """Write down the sha256 of every file of the folder but its card, which people may edit."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (HASHES, CARD):
            hashes[path.relative_to(folder).as_posix()] = sha256(path)
    write_json(folder / HASHES, hashes)


def check_seal(folder: Path) -> None:
    """Refuse a folder whose files are not those that were saved; a folder of others, without hashes, passes."""
    for name, expected in read_stored(folder / HASHES, dict).items():
        path = folder / name
        if not path.is_file() or sha256(path) != expected:
            wrong = "is not what was saved there" if path.is_file() else "is missing"
            raise DataError(
                f"cannot load encoder {folder.name!r}: {path} {wrong}. Copy the folder again, or delete its "
                f"{HASHES} to load it all the same"
            )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of an encoder's folder by name: of model.safetensors, or of the files that its index names."""
    names = [WEIGHTS]
    if not (folder / WEIGHTS).is_file():
        names = sorted(set(read_stored(folder / INDEX, dict).get("weight_map", {}).values()))
    if not names:
        raise DataError(f"cannot load encoder {folder.name!r}: {folder} has no {WEIGHTS}, and nothing else is read")
    tensors: dict[str, Any] = {}
    for name in names:
        if not name.endswith(".safetensors") or name != Path(name).name:
            raise DataError(
                f"{folder / INDEX} names {name!r}: weights are read from safetensors beside it, nothing else"
            )
        tensors |= safetensors_torch.load_file(folder / name)
    return tensors


def check_size(described: int, stored: int, what: str, folder: Path) -> None:
    """Refuse a configuration that describes far more than is stored, before memory and time are spent on it."""
    if described > 2 * stored:
        raise DataError(f"config.json of {folder} describes {described:,} {what}, more than its safetensors can hold")


def check_weights(transformer, report: Mapping[str, Any], folder: Path, reads_pooler: bool) -> None:
    """Refuse weights that are missing, but for a pooler that nobody reads; that have another shape; that are another
    transformer's (heads of a pretraining may be there); that are no numbers. ``report`` is the library's of a load."""
    parts, prefix = dict(transformer.base_model.named_children()), f"{transformer.base_model_prefix}."
    wrong = {
        "lacks weights that its config.json describes": [
            name for name in report["missing_keys"] if reads_pooler or "pooler" not in name
        ],
        "holds weights of other shapes than its config.json describes": [
            name for name, *_ in report["mismatched_keys"]
        ],
        "holds weights of another transformer than its config.json describes": [
            name
            for name in report["unexpected_keys"]
            if name.removeprefix(prefix).partition(".")[0] in parts or re.search("attention|attn", name, re.IGNORECASE)
        ],
    }
    for what, names in wrong.items():
        if names:
            raise DataError(f"{folder} {what}: {_listed(sorted(names))}. Take a copy whose files belong together")
    require_finite(transformer.state_dict(), folder / WEIGHTS)


def require_finite(tensors: Mapping[str, Tensor], where: object) -> None:
    """Refuse weights that hold NaN or infinite values: every vector would be one."""
    bad = [name for name, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    if bad:
        raise DataError(
            f"{where} holds NaN or infinite weights, in {_listed(bad)}: train it again, or take another copy"
        )


def _listed(names: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn what goes wrong while an encoder's folder is read into one sentence: of odd files the libraries raise
    anything."""
    try:
        yield
    except (DialnbError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers is no Exception
        why = in_words(error).splitlines()[0]
        raise DataError(
            f"cannot load encoder {folder.name!r}: the files in {folder} are broken or do not belong together ({why}). "
            "Copy the folder again, or take another encoder"
        ) from error


def _plain_card(encoder) -> str:
    return (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\ntags: [dialogue, dialnb]\n---\n\n"
        f"# {encoder.name}\n\nA dialogue encoder saved by dialnb: {encoder.transformer.config.model_type}, "
        f"{encoder.dim} dimensions, {encoder.pooling} pooling.\n\n"
        '```python\nimport dialnb\n\nencoder = dialnb.load_encoder("path/to/this/folder")\n'
        'vectors = encoder.encode(["book a table for two"])\n```\n'
    )


def read_stored(path: Path, kind: type) -> Any:
    """The JSON of a file, which must be of this kind; an empty one where there is no file."""
    if not path.is_file():
        return kind()
    try:
        value = read_json(path)
    except ValueError as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(value, kind):
        words: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
        raise DataError(f"{path} holds {words.get(type(value), 'a number')}, expected {words[kind]}")
    return value
