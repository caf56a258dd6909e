"""Models of other libraries as encoders: every evaluator takes what `as_encoder` takes.

A transformer with plain pooling becomes an :class:`~dialnb.models.encoder.Encoder` on the same weights, so that it can
be fine-tuned too. Any other model is only asked for its vectors.

>>> vectors = as_encoder(lambda texts: [[len(text), 1.0] for text in texts]).encode(["book", "a table"])
>>> vectors.tolist()
[[4.0, 1.0], [7.0, 1.0]]
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional

from dialnb.errors import DataError
from dialnb.models import saving
from dialnb.models.places import MODULES
from dialnb.models.saving import FLAGS, KINDS

NEEDED = "expected a folder, a hub id, a model with 'encode', a Hugging Face model, or a function from texts to vectors"


class Foreign:
    """A model that is asked for vectors and nothing else.

    Args:
        ask: makes vectors [n, d] of n texts: an array, a tensor, a list or a sparse matrix.
        name: how tables call the model.
        reader: the SentenceTransformer that tokenises for it. With one, ``max_length`` and ``truncate`` are obeyed, up
            to the model's own limit; without one, ``ask`` reads as much of a text as it does.
    """

    def __init__(self, ask: Callable[[list[str]], Any], name: str, reader: Any = None) -> None:
        self.ask = ask
        self.name = name
        self.reader = reader
        self.tokenizer = getattr(reader, "tokenizer", None)

    def encode(
        self,
        texts: Sequence[str],
        max_length: int | None = None,
        truncate: str = "right",
        normalize: bool = False,
        **_: Any,
    ) -> np.ndarray:
        """Vectors [n, d] in float32, as long as the model makes them, or of length one."""
        with reading(self.reader, max_length, truncate):
            vectors = self.ask(list(texts))
        if sparse.issparse(vectors):
            return vectors
        vectors = vectors if isinstance(vectors, torch.Tensor) else torch.from_numpy(np.asarray(vectors))
        vectors = vectors.detach().float().cpu()
        return (functional.normalize(vectors, dim=-1) if normalize else vectors).numpy()


@contextlib.contextmanager
def reading(model: Any, max_length: int | None, truncate: str) -> Iterator[None]:
    """Let a SentenceTransformer read at most so many tokens, cut on this side, for a while."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    if not hasattr(tokenizer, "truncation_side"):
        yield
        return
    length = model.max_seq_length
    side = tokenizer.truncation_side
    try:
        model.max_seq_length = min(max_length or length, length)
        tokenizer.truncation_side = truncate
        yield
    finally:
        model.max_seq_length = length
        tokenizer.truncation_side = side


def as_encoder(model: Any, task: Any = None) -> Any:
    """Make an encoder of a model, with ``encode(texts, max_length=..., truncate=...)``; an encoder stays what it is.

    Args:
        model: a folder or hub id; a SentenceTransformer; a Hugging Face model, or a pair of one and its tokenizer; an
            mteb model; anything with ``encode``; or a function from a list of texts to vectors.
        task: the metadata of an mteb task, from which an mteb model chooses its prompt.
    """
    if isinstance(model, str | Path):
        return _loaded(model)
    if isinstance(model, tuple):
        return _from_transformers(*model)
    libraries = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if hasattr(model, "mteb_model_meta"):
        return _from_mteb(model, task)
    if "sentence_transformers" in libraries:
        return _from_sentence_transformers(model)
    if "transformers" in libraries:
        return _from_transformers(model)
    if hasattr(model, "encode"):
        parameters = inspect.signature(model.encode).parameters.values()
        fits = any(each.name == "max_length" or each.kind == each.VAR_KEYWORD for each in parameters)
        return model if fits else Foreign(model.encode, type(model).__name__)
    if callable(model):
        return Foreign(model, getattr(model, "__name__", type(model).__name__))
    raise DataError(f"{type(model).__name__} is no encoder: {NEEDED}")


def as_trainable(model: Any) -> Any:
    """Make an encoder whose weights can be trained, or say why there is none."""
    encoder = as_encoder(model)
    if isinstance(encoder, Foreign):
        raise DataError(
            f"{encoder.name} gives vectors only: fine-tuning needs a transformer with mean, cls or max pooling"
        )
    return encoder


def _loaded(place: str | Path) -> Any:
    """Load a folder or hub id; a folder with modules that dialnb does not know needs sentence-transformers."""
    from dialnb.models.encoder import load_encoder

    modules = saving.read_stored(Path(place) / MODULES, list)
    kinds = {str(module.get("type")).rpartition(".")[2] for module in modules if isinstance(module, dict)}
    if kinds <= {*KINDS, "None"}:
        return load_encoder(place)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return load_encoder(place)  # says which module it cannot use
    with saving.reading(Path(place)):
        return as_encoder(SentenceTransformer(str(place), local_files_only=True))


def _from_sentence_transformers(model: Any) -> Any:
    """Take the transformer and the pooling of a SentenceTransformer, or ask it as a whole where it has more."""
    from dialnb.models.encoder import Encoder

    name = Path(getattr(model[0].auto_model, "name_or_path", "") or "SentenceTransformer").name
    prompt = (model.prompts or {}).get(model.default_prompt_name) or ""
    modules = list(model)
    kinds = tuple(type(module).__name__ for module in modules)
    if kinds in (KINDS, KINDS[:2]) and not getattr(modules[0], "do_lower_case", False):
        pooling = getattr(modules[1], "pooling_mode", None) or modules[1].get_pooling_mode_str()
        if pooling in FLAGS.values() and (modules[1].include_prompt or not prompt):
            rest = (model.max_seq_length, kinds == KINDS, prompt)
            return Encoder(modules[0].auto_model, model.tokenizer, pooling, name, *rest)
    return Foreign(lambda texts: model.encode(texts, show_progress_bar=False), name, model)


def _from_transformers(model: Any, tokenizer: Any = None) -> Any:
    """Put mean pooling on a Hugging Face model, whose heads are left out; its tokenizer is found by its name."""
    from transformers import AutoTokenizer

    from dialnb.models.encoder import Encoder

    if tokenizer is None:
        tokenizer = AutoTokenizer.from_pretrained(model.name_or_path, trust_remote_code=False)
    name = Path(model.name_or_path or type(model).__name__).name
    return Encoder(model.base_model, tokenizer, name=name, length=tokenizer.model_max_length)


def _from_mteb(model: Any, task: Any = None) -> Any:
    """Ask an mteb model with the prompt that it has for a task; one without prompts is the model inside it."""
    inside = getattr(model, "model", None)
    is_ours = hasattr(inside, "max_seq_length")
    if is_ours and not any((getattr(model, "model_prompts", None) or {}).values()):
        return as_encoder(inside)

    def ask(texts: list[str]) -> Any:
        from datasets import Dataset
        from torch.utils.data import DataLoader

        loader = DataLoader(Dataset.from_dict({"text": texts}), batch_size=64)
        return model.encode(loader, task_metadata=task or _any_task(), hf_split="test", hf_subset="default")

    return Foreign(ask, Path(model.mteb_model_meta.name or "mteb model").name, inside if is_ours else None)


def _any_task() -> Any:
    """Describe a task to an mteb model that is used outside of mteb."""
    from mteb.abstasks.task_metadata import TaskMetadata

    return TaskMetadata(
        name="dialnb",
        description="Dialogue representations",
        dataset={"path": "dialnb", "revision": "1"},
        type="Classification",
        eval_langs=["eng-Latn"],
        main_score="accuracy",
    )
