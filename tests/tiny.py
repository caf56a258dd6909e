"""Tiny encoders of every family, built in code: two layers, width 32, a vocabulary of a few dozen pieces."""

from __future__ import annotations

import numpy as np
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dialnb.models.encoder import Encoder, load_encoder
from dialnb.tokens import Tokens
from dialnb.training import Batch, Objective, TrainingSettings
from dialnb.training.loop import _Run
from dialnb.training.objective import Sum
from dialnb.training.objectives import MaskedLanguageModel, PairObjective, TemplateObjective
from dialnb.training.pretrain import new_transformer

WORDS = (
    *("a", "the", "i", "you", "we", "it", "is", "are", "do", "need", "want", "book", "find", "table", "hotel", "train"),
    *("taxi", "flight", "room", "seat", "ticket", "cheap", "good", "near", "north", "south", "centre", "please", "no"),
    *("thanks", "yes", "what", "where", "when", "which", "for", "to", "in", "from", "at", "ok", "sure", "hello", "bye"),
    *("one", "two", "three"),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEXTS = (
    "book a table",
    "",
    "i need a cheap hotel in the north please",
    "hello",
    "which train do you want from the centre to the south at two",
    "unheard words",
    "thanks bye",
)


def tokenizer(prefix: str = "[CLS]", suffix: str = "[SEP]"):
    """A word-level BERT tokenizer; ``prefix=""`` leaves out the first special token, as T5 does."""
    vocabulary = {
        piece: i for i, piece in enumerate((*SPECIAL, *WORDS, *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")))
    }
    if (prefix, suffix) == ("[CLS]", "[SEP]"):
        return hf.BertTokenizerFast(vocab=vocabulary)
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{prefix} $A {suffix}".strip(), special_tokens=[(p, vocabulary[p]) for p in (prefix, suffix) if p]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
    )


def transformer(family: str = "bert", dropout: float = 0.1, vocabulary: int = 96, **settings):
    """An untrained transformer of ``family`` with weights large enough for differences to show."""
    shape = {"vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"intermediate_size": 48, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    shape |= {"max_position_embeddings": 40, "pad_token_id": 0, "initializer_range": 0.3}
    model, config = {
        "bert": (hf.BertModel, hf.BertConfig),
        "roberta": (hf.RobertaModel, hf.RobertaConfig),
        "electra": (hf.ElectraModel, hf.ElectraConfig),
        "distilbert": (hf.DistilBertModel, hf.DistilBertConfig),
        "mpnet": (hf.MPNetModel, hf.MPNetConfig),
        "t5": (hf.T5EncoderModel, hf.T5Config),
    }[family]
    if family == "electra":
        shape["embedding_size"] = 16
    if family == "distilbert":
        shape = {"vocab_size": vocabulary, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "pad_token_id": 0}
        shape |= {
            "dropout": dropout,
            "attention_dropout": dropout,
            "max_position_embeddings": 40,
            "initializer_range": 0.3,
        }
    if family == "t5":
        shape = {"vocab_size": vocabulary, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        shape |= {"dropout_rate": dropout, "pad_token_id": 0, "eos_token_id": 3}
    return model(config(**shape | settings))


def encoder(family: str = "bert", dropout: float = 0.1, seed: int = 7, pooling: str = "mean", **settings) -> Encoder:
    torch.manual_seed(seed)
    pieces = tokenizer("", "[SEP]") if family == "t5" else tokenizer()
    return Encoder(transformer(family, dropout, **settings), pieces, pooling, name=f"tiny-{family}").eval()


def one_layer() -> Encoder:
    """The smallest encoder with the word pieces of the bundled one, for notebooks in their smallest profile."""
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    pieces = load_encoder("mini", device="cpu").tokenizer
    torch.manual_seed(7)  # whether it is above chance on twenty items hangs on what is drawn
    return Encoder(new_transformer("bert", shape, len(pieces)), pieces, name="tiny")


def sentences(count: int, seed: int = 0) -> list[str]:
    """Random word sequences of 1 to 9 words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 10))) for _ in range(count)]


class Everything:
    """Examples with every field that any objective asks for: pairs, templates, masks, weights, duplicates, windows.

    Masks are a function of the row, so that any split into processes and chunks masks alike; ``redrawn`` takes them
    from the generator, as real examples do. The weight of row ``poison`` is not a number.
    """

    groups = None

    def __init__(
        self, encoder: Encoder, count: int, windows: tuple = (), poison: int | None = None, redrawn: bool = False
    ) -> None:
        self.count, self.poison, self.redrawn = count, poison, redrawn
        self.tokens: Tokens = encoder.tokenize(sentences(2 * count))
        rng = np.random.default_rng(1)
        self.weights = rng.uniform(0.2, 1.0, count)
        self.ids = rng.integers(0, max(2, count // 2), count)
        self.window = np.resize(windows or (0,), count)
        if windows:
            self.groups = [np.flatnonzero(self.window == w) for w in windows]

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        first, second = self.tokens[rows], self.tokens[rows + self.count]
        pair, views = Tokens.concatenate([first, second]), Tokens.concatenate([first, first, second, second])
        tokens = {"pair": pair, "views": views, "masked": first}
        weights = np.where(rows == self.poison, np.nan, self.weights[rows])
        draws = [rng if self.redrawn else np.random.default_rng(int(row)) for row in rows]
        share = np.concatenate([draw.random(n) for draw, n in zip(draws, first.lengths, strict=True)])
        masked = np.flatnonzero(share < 0.4)
        sequence = np.searchsorted(first.offsets, masked, side="right") - 1
        arrays = {
            "weights": weights,
            "duplicates": self.ids[rows],
            "template_ids": self.ids[rows],
            "window": self.window[rows],
            "masked_sequence": sequence,
            "masked_position": masked - first.offsets[sequence],
            "masked_label": first.ids[masked].astype(np.int64),
        }
        return Batch(len(rows), tokens, arrays, {"mlm": len(masked)})


class Pairs(PairObjective):
    """A pair objective for losses that take neither weights nor identifiers of duplicates."""

    def describe(self) -> dict:
        """The same for those that stumble on purpose, which go on from each other's checkpoints."""
        return super().describe() | {"objective": "Pairs"}

    def embed(self, encoder, batch: Batch) -> dict[str, torch.Tensor]:
        return {side: v for side, v in super().embed(encoder, batch).items() if side in ("first", "second")}


def objectives(encoder: Encoder, seed: int = 3) -> dict[str, Objective]:
    """Every in-batch objective, the averaged one, and their sum, with the same random heads every time."""
    torch.manual_seed(seed)
    dim = encoder.dim
    return {
        "hard_negative": Pairs(dim, "hard_negative"),
        "plain": Pairs(dim, "hard_negative", form="plain", temperature=0.1),
        "nt_xent": Pairs(dim, "nt_xent", head="tanh", pooling="cls"),
        "response_contrastive": Pairs(dim, "response_contrastive", head="none", pooling="cls"),
        "weighted_symmetric": PairObjective(dim, "weighted_symmetric", head="linear"),
        "template": TemplateObjective(dim),
        "template aligned and masked": TemplateObjective(
            dim, aligned=True, mask_same_template=True, direction="both", weight_pair=0.3
        ),
        "mlm": MaskedLanguageModel(encoder),
        "sum": Sum(contrast=Pairs(dim, "response_contrastive", head="none"), mlm=MaskedLanguageModel(encoder)),
    }


def gradient(encoder: Encoder, objective: Objective, examples, settings: TrainingSettings, step: int = 0):
    """Loss and gradients of one step, as the loop computes them (in every process that calls this)."""
    for parameter in [*encoder.parameters(), *objective.parameters()]:
        parameter.grad = None
    run = _Run(encoder, objective, examples, settings, None, None, "test", False)
    run._enter_training()
    loss, _ = run.backward(step, run.build(step))
    run._leave_training()
    named = [*encoder.named_parameters("encoder"), *objective.named_parameters("objective")]
    return float(loss), {name: p.grad.clone() for name, p in named if p.grad is not None}


def relative_error(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Norm of the difference of two gradients over the norm of the second."""
    assert found.keys() == expected.keys()
    off = sum(float((found[k] - expected[k]).square().sum()) for k in expected)
    return (off / sum(float(g.square().sum()) for g in expected.values())) ** 0.5
