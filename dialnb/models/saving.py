"""Encoder folders that plain ``AutoModel``, ``SentenceTransformer`` and ``dialnb.load_encoder`` all read.

A folder says how a text becomes one vector (length, prompt, pooling, normalisation) in the files of
sentence-transformers, and in ``hashes.json`` what its own files are.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialnb.errors import DataError

if TYPE_CHECKING:
    import torch

HASHES = "hashes.json"
CARD = "README.md"
MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
LENGTHS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where sentence-transformers keeps the length of an encoder; other families than BERT had names of their own once."""
READOUT = (MODULES, PROMPTS, *LENGTHS, "1_Pooling/config.json")


@dataclass(frozen=True)
class Readout:
    """How a folder makes one vector of a text; what it does not say is None, False or empty."""

    pooling: str | None = None
    length: int | None = None
    normalize: bool = False
    prompt: str = ""
    lowercase: bool = False


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
    from dialnb.files import make_folder

    if folder.exists() and not (folder / "modules.json").is_file() and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder} holds something that is not an encoder, and would be replaced; name another folder")
    make_folder(folder.parent)


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
    import torch
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
    parts = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if encoder.normalize else {})
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(parts.items())
    ]
    prompts = (
        {"prompts": {"text": encoder.prompt}, "default_prompt_name": "text"} if encoder.prompt else {"prompts": {}}
    )
    (folder / "1_Pooling").mkdir()
    _json(folder / "1_Pooling" / "config.json", pooling)
    _json(folder / MODULES, modules)
    _json(folder / LENGTHS[0], {"max_seq_length": encoder.length, "do_lower_case": False})
    _json(folder / PROMPTS, {"similarity_fn_name": "cosine"} | prompts)
    (folder / CARD).write_text(card or _plain_card(encoder), encoding="utf-8")
    seal(folder)


def _own_tensors(transformer):
    """Every stored tensor once: tied ones are written under their first name."""
    seen = set()
    for name, tensor in transformer.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, tensor


def read_readout(folder: Path, pooling: str | None = None) -> Readout:
    """What a folder says in the files of sentence-transformers; what dialnb cannot do is refused.

    ``pooling`` overrules everything that follows the transformer.
    """
    said = _read_modules(folder) if pooling is None else {"pooling": pooling}
    sizes = next((_read(folder / name, dict) for name in LENGTHS if (folder / name).is_file()), {})
    length, prompts = sizes.get("max_seq_length"), _read(folder / PROMPTS, dict)
    if length is not None and (type(length) is not int or length < 1):
        raise DataError(f"{folder} says max_seq_length {length!r}, expected a number of tokens")
    wanted, known = prompts.get("default_prompt_name"), prompts.get("prompts") or {}
    if wanted is not None and not isinstance(known.get(wanted), str):
        raise DataError(f"{folder / PROMPTS} names the prompt {wanted!r}, but has no such prompt")
    prompt = known[wanted] if wanted is not None else ""
    if not said.pop("include_prompt", True) and prompt:
        raise DataError(f"{folder} leaves its prompt {prompt!r} out when it pools, which dialnb cannot: pass pooling=")
    return Readout(**said, length=length, prompt=prompt, lowercase=bool(sizes.get("do_lower_case")))


def _read_modules(folder: Path) -> dict[str, Any]:
    """Pooling and normalisation of a folder that follows the transformer with these two and nothing else."""
    plain = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "1_Pooling"}]
    listed = _read(folder / MODULES, list) or plain[: 1 + (folder / "1_Pooling" / "config.json").is_file()]
    try:
        parts = [(str(part["type"]).rpartition(".")[2], str(part["path"])) for part in listed]
    except (TypeError, KeyError):
        raise DataError(f"{folder / MODULES} is not a list of modules with a type and a path each") from None
    kinds = [kind for kind, _ in parts]
    if kinds[0] != "Transformer" or kinds[1:] not in ([], ["Pooling"], ["Pooling", "Normalize"]):
        raise DataError(
            f"{folder / MODULES} asks for {', then '.join(kinds)}, but dialnb knows a Transformer, then Pooling, then "
            "Normalize: pass pooling= to take the transformer without the rest"
        )
    if len(parts) == 1:
        return {}
    if parts[1][1] != Path(parts[1][1]).name:
        raise DataError(f"{folder / MODULES} looks for its pooling in {parts[1][1]!r}, which is no folder within it")
    path = folder / parts[1][1] / "config.json"
    said = _read(path, dict)
    flags = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
    wanted = [
        flags.get(name, name) for name, value in said.items() if name.startswith("pooling_mode_") and value is True
    ]
    if mode := said.get("pooling_mode"):  # the newer way to say it
        wanted = mode if isinstance(mode, list) else [mode]
    if len(wanted) != 1 or wanted[0] not in flags.values():
        asked = " and ".join(map(str, wanted)) or "nothing"
        raise DataError(f"{path} asks for {asked}, but dialnb pools by one of mean, cls and max: choose a pooling")
    return {"pooling": wanted[0], "normalize": "Normalize" in kinds, "include_prompt": said.get("include_prompt", True)}


def seal(folder: Path) -> None:
    """Write down the sha256 of every file of the folder but its card, which people may edit."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (HASHES, CARD)]
    _json(folder / HASHES, {path.relative_to(folder).as_posix(): sha256(path) for path in files})


def check_seal(folder: Path) -> None:
    """Refuse a folder whose files are not those that were saved; a folder of others, without hashes, passes."""
    here = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, expected in _read(folder / HASHES, dict).items():
        if name not in here or sha256(here[name]) != expected:
            wrong = "is missing" if name not in here else "is not what was saved there"
            raise DataError(
                f"cannot load encoder {folder.name!r}: {folder / name} {wrong}. Copy the folder again, or delete its "
                f"{HASHES} to load it all the same"
            )


def require_finite(tensors: Mapping[str, torch.Tensor], where: object) -> None:
    """Refuse weights that hold NaN or infinite values: every vector would be one."""
    bad = [name for name, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise DataError(
            f"{where} holds NaN or infinite weights, in {bad[0]}{more}: train it again, or take another copy"
        )


def _plain_card(encoder) -> str:
    return (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\ntags: [dialogue, dialnb]\n---\n\n"
        f"# {encoder.name}\n\nA dialogue encoder saved by dialnb: {encoder.transformer.config.model_type}, "
        f"{encoder.dim} dimensions, {encoder.pooling} pooling.\n\n"
        '```python\nimport dialnb\n\nencoder = dialnb.load_encoder("path/to/this/folder")\n'
        'vectors = encoder.encode(["book a table for two"])\n```\n'
    )


def sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path, kind: type) -> Any:
    """The JSON of a file, which must be of this kind; an empty one where there is no file."""
    if not path.is_file():
        return kind()
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(value, kind):
        found, wanted = (
            {dict: "an object", list: "a list", str: "a text"}.get(one, "a number") for one in (type(value), kind)
        )
        raise DataError(f"{path} holds {found}, expected {wanted}")
    return value


def _json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
