"""MPNet's weights laid out as BERT's, which the packed pass reads and every recipe trains."""

from typing import Any

from torch import nn

from dialnb.models import packed
from dialnb.models.encoder import Encoder
from dialnb.seeding import seeded

RENAMED = {
    "attention.attn.q.": "attention.self.query.",
    "attention.attn.k.": "attention.self.key.",
    "attention.attn.v.": "attention.self.value.",
    "attention.attn.o.": "attention.output.dense.",
    "attention.LayerNorm.": "attention.output.LayerNorm.",
}
"""The parts of a layer that the two families call by different names."""
LEFT_OUT = "encoder.relative_attention_bias.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
SAME = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "pad_token_id"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps", "initializer_range"),
)
"""Settings that mean the same in both families."""
LAID_OUT = (
    "The start is an MPNet whose weights were laid out as BERT's: its table of relative positions was left out, and "
    "the two token types, which it does not have, began as zeros."
)
"""What the card of such an encoder says."""


def is_mpnet(transformer: Any) -> bool:
    return transformer.config.model_type == "mpnet"


def as_bert(mpnet: Any) -> nn.Module:
    """Lay the weights of an MPNet of any size out as a BERT.

    BERT has no table of relative positions, so that of MPNet is left out. This moves the vectors: an epoch of masked
    words heals it. MPNet counts positions from the row after that of its padding; BERT's token types, which MPNet
    lacks, are zeros.
    """
    from transformers import BertConfig, BertModel

    first = mpnet.embeddings.position_embeddings.padding_idx + 1
    weights = {}
    for name, tensor in mpnet.state_dict().items():
        if name != LEFT_OUT:
            for theirs, ours in RENAMED.items():
                name = name.replace(theirs, ours)
            weights[name] = tensor[first:] if name == POSITIONS else tensor
    words, width = weights["embeddings.word_embeddings.weight"].shape
    config = BertConfig(
        vocab_size=words,
        max_position_embeddings=len(weights[POSITIONS]),
        type_vocab_size=2,
        **{name: getattr(mpnet.config, name) for name in SAME},
    )
    weights[TYPES] = weights[POSITIONS].new_zeros(2, width)
    with seeded(0):
        bert = BertModel(config, add_pooling_layer=mpnet.pooler is not None)
    bert.load_state_dict(weights)
    return bert.to(weights[TYPES]).train(mpnet.training)


def lay_out_as_bert(encoder: Encoder) -> Encoder:
    """Make an encoder that is an MPNet (in place) a BERT; any other stays as it is."""
    if is_mpnet(encoder.transformer):
        encoder.transformer = as_bert(encoder.transformer)
        encoder.packed = packed.supports(encoder.transformer)
    return encoder
