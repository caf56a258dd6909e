"""Encoders from scratch: a vocabulary, a shape and masked language modelling on dialogues (BERT), or replaced-token
detection (ELECTRA). The same few lines make the bundled ``mini``, the larger ``small`` and a Chinese one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from dialnb.data.corpora import Conversation
from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Examples
from dialnb.examples.masking import MaskedExamples
from dialnb.examples.pairs import SEPARATOR
from dialnb.models.encoder import Encoder
from dialnb.models.layout import lay_out_as_bert
from dialnb.seeding import seeded
from dialnb.training.loop import TrainingResult, train
from dialnb.training.objective import Objective
from dialnb.training.objectives import MaskedLanguageModel, ReplacedTokenDetection
from dialnb.training.settings import PRINTED, TrainingSettings

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _shape(width: int, layers: int) -> dict[str, int]:
    """BERT's proportions: heads of 64, feed-forward layers of four times the width."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }


SHAPES = {"mini": _shape(256, 4), "small": _shape(384, 6), "medium": _shape(512, 8), "base": _shape(768, 12)}
GOES_ON = "encoder"  # the shape of an encoder whose pretraining goes on
ASKED = 2048  # texts in which an ELECTRA looks for replaced tokens at the end
GENERATOR = _shape(64, 2) | {"num_attention_heads": 2}


@dataclass(frozen=True)
class PretrainingRecipe:
    """Everything that decides a pretrained encoder besides the text."""

    shape: str = "mini"
    kind: str = "bert"
    vocabulary: int = 8192
    max_length: int = 128
    mask: float = 0.2
    settings: TrainingSettings = PRINTED["pretraining mini"]
    own_words: bool = False  # it has a vocabulary of its text, not that of the encoder it is made beside
    name: str = ""  # of the encoder; empty: its shape

    def __post_init__(self) -> None:
        check_known("shape", self.shape, [*SHAPES, GOES_ON])
        check_known("kind", self.kind, ("bert", "electra"))

    def lessons(self, encoder: Encoder, dialogues: Sequence[Conversation], cache) -> tuple[Objective, Examples]:
        """What the encoder learns, and from which examples: masked words, or replaced tokens."""
        objective = replaced_token_detection(encoder) if self.kind == "electra" else MaskedLanguageModel(encoder)
        rows = encoder.tokenize(language_rows(dialogues, self.settings.seed), self.max_length, cache=cache)
        return objective, MaskedExamples.from_tokens(encoder, rows, self.mask)


def train_vocabulary(texts: Iterable[str], size: int):
    """An uncased word-piece tokenizer of its own, the same in every process; Chinese characters are pieces.

    The library's own choice among equally rare letters, its numbers of pieces within words and hence its choice among
    equally frequent pairs change from process to process; here letters are chosen, and all of them numbered, before.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import BertTokenizer

    texts, most = list(texts), size // 2
    draft = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    draft.normalizer = normalizers.BertNormalizer(lowercase=True)
    draft.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()  # letters
    inner: set[str] = set()  # those that occur within a word
    for text in texts:
        for word, _ in draft.pre_tokenizer.pre_tokenize_str(draft.normalizer.normalize_str(text)):
            counts.update(word)
            inner.update(word[1:])
    letters = sorted(counts, key=lambda letter: (-counts[letter], letter))[:most]
    within_words = [f"##{letter}" for letter in sorted(inner.intersection(letters))]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *within_words],
        initial_alphabet=letters,
        limit_alphabet=most,
        show_progress=False,
    )
    draft.train_from_iterator(texts, trainer)
    return BertTokenizer(vocab=draft.get_vocab(), do_lower_case=True, model_max_length=512)


def new_transformer(kind: str, shape: dict, vocabulary: int):
    """A BERT or ELECTRA body with fresh weights."""
    from transformers import BertConfig, BertModel, ElectraConfig, ElectraModel

    if kind == "electra":
        return ElectraModel(ElectraConfig(vocab_size=vocabulary, **({"embedding_size": shape["hidden_size"]} | shape)))
    return BertModel(BertConfig(vocab_size=vocabulary, **shape))


def language_rows(dialogues: Sequence[Conversation], seed: int) -> list[str]:
    """What the language model reads: every distinct utterance, and the dialogues cut into windows of two to six
    neighbouring utterances (so that longer inputs and replies are seen as well)."""
    rng = np.random.default_rng(seed)
    rows = dict.fromkeys(u for d in dialogues for u in d.utterances)
    for dialogue in dialogues:
        if not dialogue.paired:
            continue
        rng.random()  # once decided about the dialogue; drawn on, so that the same seed gives the same windows
        start = 0
        while start < len(dialogue.utterances) - 1:
            width = int(rng.integers(2, 7))
            rows[SEPARATOR.join(dialogue.utterances[start : start + width])] = None
            start += width
    return list(rows)


def pretrain(
    dialogues: Sequence[Conversation],
    recipe: PretrainingRecipe,
    folder=None,
    device: str | None = None,
    name: str = "pretrain",
    cache=None,
    start: Encoder | None = None,
) -> tuple[Encoder, TrainingResult]:
    """Make vocabulary and encoder and train it on ``dialogues``; ``folder`` keeps checkpoints, so it can be resumed,
    and ``cache`` (by default the same) the tokenised texts. ``start`` lends its vocabulary and, where the shape is
    `GOES_ON`, its weights. Of an ELECTRA the facts say how well it tells replaced tokens."""
    seed = recipe.settings.seed
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    said = (u for d in dialogues for u in d.utterances)
    tokenizer = start.tokenizer if start else train_vocabulary(said, recipe.vocabulary)
    with seeded(seed):
        if start and recipe.shape == GOES_ON:  # BERT's body and ELECTRA's differ by the pooler
            former = lay_out_as_bert(start.clone()).transformer
            config, weights = former.config, former.state_dict()
            same = (*SHAPES["mini"], "max_position_embeddings", "layer_norm_eps")
            shape = {name: getattr(config, name) for name in same}
            body = new_transformer(recipe.kind, shape, config.vocab_size)
            body.load_state_dict({name: weights[name] for name in weights if not name.startswith("pooler.")})
        else:
            body = new_transformer(recipe.kind, SHAPES[recipe.shape], len(tokenizer))
        encoder = Encoder(body, tokenizer, name=name).to(device)
        objective, examples = recipe.lessons(encoder, dialogues, cache or folder)
    settings = recipe.settings if device != "cpu" else replace(recipe.settings, precision="float32")
    result = train(encoder, objective, examples, settings, folder, name=name)
    if isinstance(objective, ReplacedTokenDetection):
        rng = np.random.default_rng(seed)
        asked = examples.batch(rng.permutation(len(examples))[:ASKED], rng)
        result.facts["skill"] = objective.skill(encoder.eval(), asked)
    return encoder.eval(), result


def replaced_token_detection(encoder: Encoder) -> ReplacedTokenDetection:
    """ELECTRA's pretraining, from scratch or continued on dialogues (ELECTRA+): with a fresh generator, narrow and
    shallow, that reads the encoder's word table through a projection."""
    if not encoder.packed:
        raise DataError(
            f"replaced tokens are looked for by encoders of BERT's family, but {encoder.name!r} is of the family "
            f"{encoder.transformer.config.model_type}: start from what 'dialnb train \"masked words\"' makes of it"
        )
    words = encoder.transformer.get_input_embeddings()
    shape = {**GENERATOR, "embedding_size": words.embedding_dim}
    shape["max_position_embeddings"] = encoder.transformer.config.max_position_embeddings
    generator = Encoder(new_transformer("electra", shape, words.num_embeddings), encoder.tokenizer, name="generator")
    generator.transformer.set_input_embeddings(words)
    return ReplacedTokenDetection(encoder, generator.to(encoder.device))
