"""Encoder folders that plain ``AutoModel``, ``SentenceTransformer`` and ``dialnb.load_encoder`` all read."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import torch

from dialnb.errors import DataError


def save_encoder(encoder, folder: Path, card: str | None = None, dtype: torch.dtype | None = None) -> Path:
    """Write everything into a temporary folder beside ``folder``, then swap it in; nothing half-written is seen.

    ``dtype`` narrows the stored weights (float16 halves the file); the configuration keeps float32, so that every
    reader widens them again.
    """
    if encoder.pooling == "pooler":
        raise DataError(
            "an encoder with pooling='pooler' has no sentence-transformers layout; save it with 'cls' or 'mean'"
        )
    folder = Path(folder)
    check_place(folder)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(encoder, draft, card, dtype)
        draft.chmod(0o755)
        _swap_in(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return folder


def check_place(folder: Path) -> None:
    """Refuse a place where no encoder can be written, or where something else lies that would be lost."""
    from dialnb.runs.files import check_writable

    if folder.exists() and not (folder / "modules.json").is_file() and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder} holds something that is not an encoder, and would be replaced; name another folder")
    check_writable(folder)


def _swap_in(draft: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}-old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.replace(old)
    try:
        draft.replace(folder)
    except BaseException:
        if old.exists():
            old.replace(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(encoder, folder: Path, card: str | None, dtype: torch.dtype | None) -> None:
    from safetensors.torch import save_file

    config = encoder.transformer.config
    if getattr(config, "architectures", None) is None:
        config.architectures = [type(encoder.transformer).__name__]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    stored = {n: t.detach().to("cpu", dtype or t.dtype).contiguous() for n, t in _own_tensors(encoder.transformer)}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    encoder.tokenizer.save_pretrained(folder)
    pooling = {
        "word_embedding_dimension": encoder.dim,
        "pooling_mode_cls_token": encoder.pooling == "cls",
        "pooling_mode_mean_tokens": encoder.pooling == "mean",
        "pooling_mode_max_tokens": encoder.pooling == "max",
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": False,
        "include_prompt": True,
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "1_Pooling").mkdir()
    _json(folder / "1_Pooling" / "config.json", pooling)
    _json(folder / "modules.json", modules)
    _json(folder / "sentence_bert_config.json", {"max_seq_length": encoder.max_length, "do_lower_case": False})
    _json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine", "prompts": {}})
    (folder / "README.md").write_text(card or _plain_card(encoder), encoding="utf-8")


def _own_tensors(transformer):
    """Every stored tensor once: tied ones are written under their first name."""
    seen = set()
    for name, tensor in transformer.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, tensor


def stored_pooling(folder: Path) -> str | None:
    """What a sentence-transformers folder says about pooling, or None if it says nothing."""
    path = Path(folder) / "1_Pooling" / "config.json"
    if not path.is_file():
        return None
    try:
        said = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} says nothing about pooling: it should hold a JSON object, but is broken") from error
    flags = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
    wanted = [
        flags.get(name, name) for name, value in said.items() if name.startswith("pooling_mode_") and value is True
    ]
    wanted = [said["pooling_mode"]] if "pooling_mode" in said else wanted
    if len(wanted) != 1 or wanted[0] not in flags.values():
        said = " and ".join(map(str, wanted)) or "nothing"
        raise DataError(f"{path} asks for {said}, but dialnb pools by one of mean, cls and max: choose a pooling")
    return wanted[0]


def _plain_card(encoder) -> str:
    return (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\ntags: [dialogue, dialnb]\n---\n\n"
        f"# {encoder.name}\n\nA dialogue encoder saved by dialnb: {encoder.transformer.config.model_type}, "
        f"{encoder.dim} dimensions, {encoder.pooling} pooling.\n\n"
        '```python\nimport dialnb\n\nencoder = dialnb.load_encoder("path/to/this/folder")\n'
        'vectors = encoder.encode(["book a table for two"])\n```\n'
    )


def _json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
