"""The objectives of the papers as modules: heads plus one of the pure functions in ``dialnb.losses``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature

import torch
from torch import Tensor, nn

from dialnb import losses
from dialnb.errors import BadParameter, check_known
from dialnb.examples.batches import Batch
from dialnb.models.heads import WordHead, contrastive_head, tanh_head
from dialnb.tokens import Packed
from dialnb.training.objective import Objective, Tensors

PAIR_LOSSES: dict[str, Callable] = {
    "hard_negative": losses.hard_negative_loss,
    "nt_xent": losses.nt_xent_loss,
    "response_contrastive": losses.response_contrastive_loss,
    "weighted_symmetric": losses.weighted_symmetric_loss,
}
FROM_BATCH = ("first", "second", "context", "response", "weights", "duplicate_ids", "hard_negatives")
"""What a pair loss is given of every batch; its other parameters are options."""
AGGREGATIONS = ("I1", "I2")

HEADS: dict[str, Callable[[int], nn.Module]] = {
    "contrastive": contrastive_head,
    "tanh": tanh_head,
    "linear": lambda dim: nn.Linear(dim, dim),
    "none": lambda dim: nn.Identity(),
}


def _rehearse(loss: Callable, sides: int, options: dict) -> None:
    """Refuse options that the loss cannot be computed with, long before its first batch."""
    try:
        loss(*[torch.eye(2)] * sides, **options)
    except TypeError as error:
        said = ", ".join(f"{name}={value}" for name, value in options.items())
        raise BadParameter(f"the loss cannot be computed with these options: {said}") from error


class PairObjective(Objective):
    """Two sides per example, in-batch negatives. DSE, SimCSE, TOD-BERT's contrast and WMDC are settings of it.

    ``loss`` is one of `PAIR_LOSSES` or a function of your own of two matrices of vectors [batch, d].
    ``windows`` gives one head per window size (WMDC); the batch's array ``window`` picks it. Arrays ``weights`` and
    ``duplicates`` of the batch travel to the loss under the names it takes.
    """

    def __init__(
        self,
        dim: int,
        loss: str | Callable = "hard_negative",
        head: str = "contrastive",
        pooling: str = "mean",
        windows: tuple[int, ...] = (),
        **options,
    ) -> None:
        super().__init__()
        check_known("head", head, HEADS)
        if isinstance(loss, str):
            check_known("pair loss", loss, PAIR_LOSSES)
            name, self.function = loss, PAIR_LOSSES[loss]
        else:
            name, self.function = loss.__name__, loss
        known = [option for option in signature(self.function).parameters if option not in FROM_BATCH]
        for option in options:
            check_known(f"option of the {name} loss", option, known)
        _rehearse(self.function, 2, options)
        self.names = {"loss": name, "head": head, "pooling": pooling, "windows": list(windows), **options}
        self.pooling, self.options = pooling, options
        self.heads = nn.ModuleDict({str(w): HEADS[head](dim) for w in windows or (0,)})

    def embed(self, encoder, batch: Batch) -> Tensors:
        both = encoder.embed(batch.tokens["pair"], self.pooling)
        window = int(batch.arrays["window"][0]) if self.names["windows"] else 0
        first, second = self.heads[str(window)](both).split(batch.size)
        vectors = {"first": first, "second": second}
        if "weights" in batch.arrays:
            vectors["weights"] = batch.tensor("weights", first.device).to(first.dtype)
        if "duplicates" in batch.arrays:
            vectors["duplicate_ids"] = batch.tensor("duplicates", first.device)
        return vectors

    def loss(self, vectors: Tensors) -> Tensor:
        more = dict(vectors)
        return self.function(more.pop("first"), more.pop("second"), **self.options, **more)


class TemplateObjective(Objective):
    """TaDSE: utterances and their templates, each seen twice under dropout (Section 3.2, Eqs. for L_u, L_t, L_pair).
    The batch's tokens ``views`` are the utterances, the utterances again, the templates, the templates again.

    ``aligned`` adds M_A, one tanh layer on template vectors only. ``head`` is SimCSE's training head on both.
    """

    def __init__(
        self, dim: int, pooling: str = "cls", aligned: bool = False, mask_same_template: bool = False, **options
    ) -> None:
        super().__init__()
        _rehearse(losses.template_losses, 4, options)
        self.names = {"pooling": pooling, "aligned": aligned, "mask_same_template": mask_same_template, **options}
        self.pooling, self.options, self.mask = pooling, options, mask_same_template
        self.head = tanh_head(dim)
        self.alignment = tanh_head(dim) if aligned else nn.Identity()

    def embed(self, encoder, batch: Batch) -> Tensors:
        u, u_plus, t, t_plus = self.head(encoder.embed(batch.tokens["views"], self.pooling)).split(batch.size)
        vectors = {"utterance": u, "utterance_plus": u_plus}
        vectors |= {"template": self.alignment(t), "template_plus": self.alignment(t_plus)}
        if self.mask:
            vectors["template_ids"] = batch.tensor("template_ids", u.device)
        return vectors

    def loss(self, vectors: Tensors) -> Tensor:
        return losses.template_losses(**vectors, **self.options).total


def _masked(batch: Batch, packed: Packed) -> tuple[Tensor, Tensor]:
    """Where the masked word pieces lie in the packed batch, and which they were."""
    sequence, position, labels = (
        batch.tensor(f"masked_{name}", packed.ids.device) for name in ("sequence", "position", "label")
    )
    return packed.places(sequence, position), labels


class MaskedLanguageModel(Objective):
    """Predict the masked word pieces of ``batch.tokens["masked"]`` (arrays ``masked_sequence``, ``masked_position``,
    ``masked_label``); only those rows reach the output layer."""

    def __init__(self, encoder) -> None:
        super().__init__()
        words = encoder.transformer.get_input_embeddings().weight
        self.head = WordHead(encoder.dim, *words.shape)

    def terms(self, encoder, batch: Batch) -> Tensors:
        return self.read(encoder, batch, *encoder.hidden(batch.tokens["masked"]))

    def read(self, encoder, batch: Batch, states: Tensor, packed: Packed) -> Tensors:
        """The terms, which share the hidden states."""
        places, labels = _masked(batch, packed)
        if not len(labels):
            learns = states if states.requires_grad else next(self.head.parameters())  # the encoder may be frozen
            return {"mlm": learns.sum() * 0.0}
        logits = self.head(states[places], encoder.transformer.get_input_embeddings().weight)
        return {"mlm": losses.masked_language_model_loss(logits, labels)}


class NextSentencePrediction(MaskedLanguageModel):
    """BERT's pre-training: masked words and, of inputs with two segments, is the second one the next one?

    The array ``next_label`` is 0 (is next), 1 (is random) or -100 (not asked); the count ``nsp`` is of those asked.
    """

    def __init__(self, encoder) -> None:
        super().__init__(encoder)
        self.next = nn.Sequential(nn.Linear(encoder.dim, encoder.dim), nn.Tanh(), nn.Linear(encoder.dim, 2))

    def read(self, encoder, batch: Batch, states: Tensor, packed: Packed) -> Tensors:
        logits = self.next(encoder.pool(states, packed, "cls"))
        asked = batch.tensor("next_label", logits.device)
        next_sentence = losses.next_sentence_loss(logits, asked) if batch.counts["nsp"] else logits.sum() * 0.0
        return {**super().read(encoder, batch, states, packed), "nsp": next_sentence}


class ReplacedTokenDetection(Objective):
    """ELECTRA: a small generator fills the masks, the encoder tells for every token whether it was replaced.

    The generator shares the encoder's word table; its outputs are sampled (no gradient flows through them). The loss
    is the generator's cross-entropy plus ``weight`` times the detection loss; ``terms`` of the batch are those of
    :class:`MaskedLanguageModel` and the count ``rtd`` of real tokens.
    """

    def __init__(self, encoder, generator, weight: float = 50.0) -> None:
        super().__init__()
        words = encoder.transformer.get_input_embeddings().weight
        self.generator, self.weight, self.names = generator, weight, {"weight": weight}
        self.word_head = WordHead(generator.dim, *words.shape)
        self.detector = nn.Sequential(nn.Linear(encoder.dim, encoder.dim), nn.GELU(), nn.Linear(encoder.dim, 1))

    def terms(self, encoder, batch: Batch) -> Tensors:
        logits, labels, scores, replaced = self._detect(encoder, batch)
        return {
            "mlm": losses.masked_language_model_loss(logits, labels),
            "rtd": self.weight * losses.replaced_token_loss(scores, replaced),
        }

    @torch.inference_mode()
    def skill(self, encoder, batch: Batch) -> float:
        """Of what there is to know about replaced tokens, the share that is known: 1 - loss / entropy of their share;
        0 for who always says how frequent they are."""
        self.eval()
        *_, scores, replaced = self._detect(encoder, batch)
        prior = replaced.mean().logit().expand_as(replaced)
        found, usual = (losses.replaced_token_loss(each, replaced) for each in (scores, prior))
        return float(1 - found / usual)

    def _detect(self, encoder, batch: Batch) -> tuple[Tensor, ...]:
        """Of masked tokens the generator's logits and the words, of all tokens the scores and what was replaced."""
        for name in ("dtype", "attention_dropout"):
            setattr(self.generator, name, getattr(encoder, name))
        states, packed = self.generator.hidden(batch.tokens["masked"])
        places, labels = _masked(batch, packed)
        logits = self.word_head(states[places], encoder.transformer.get_input_embeddings().weight)
        original = packed.ids.index_copy(0, places, labels)
        drawn = nn.functional.gumbel_softmax(logits.detach().float()).argmax(-1)  # without a wait for the device
        corrupted = original.index_copy(0, places, drawn)
        found = encoder.states(replace(packed, ids=corrupted))
        scores = self.detector(found.to(self.detector[0].weight.dtype)).squeeze(-1)
        return logits, labels, scores, (corrupted != original).to(scores.dtype)


# --- UMS and DialogueCSE ----------------------------------------------------------------------------------------------


class ManipulationObjective(Objective):
    """UMS: ``L = L_rs + weight (L_INS + L_DEL + L_SRCH)`` over one forward pass of all inputs of the batch.

    ``heads`` are those of a :class:`dialnb.models.selector.Selector`. Which tasks there are is decided by the examples;
    each term is a mean over its own rows, so that chunks and processes add up to the whole batch.
    """

    def __init__(self, heads: nn.ModuleDict, tasks: Sequence[str], weight: float = 1.0) -> None:
        super().__init__()
        for task in tasks:
            check_known("task", task, set(heads) - {"selection"})
        self.heads = nn.ModuleDict({name: heads[name] for name in ("selection", *tasks)})
        self.tasks, self.weight, self.names = tuple(tasks), weight, {"tasks": list(tasks), "weight": weight}

    def terms(self, encoder, batch: Batch) -> Tensors:
        states, packed = encoder.hidden(batch.tokens["inputs"])
        first = encoder.pool(states, packed, "cls")[: batch.size]
        labels = batch.tensor("labels", states.device)
        terms = {"selection": losses.manipulation_loss(self.heads["selection"](first).squeeze(-1), labels, {})}
        for task in self.tasks:
            if batch.counts[task]:
                sequence, position, mask, target = (
                    batch.tensor(f"{task}_{name}", states.device) for name in ("sequence", "position", "mask", "target")
                )
                vectors = states[packed.places(sequence, position)].to(first.dtype)
                logits = self.heads[task](vectors).squeeze(-1)
                terms[task] = self.weight * losses.manipulation_task_loss(logits, mask, target)
        return terms


class MatchingGuidedObjective(Objective):
    """DialogueCSE: each candidate against its own context-aware version (Eq. 8), turns averaged (I2) or weighed (I1).

    All texts of the batch go through the encoder once and together; a context serves every candidate of its group. A
    turn enters the matching as the mean of its tokens alone (see :func:`dialnb.losses.matching_guided_embedding`).
    """

    def __init__(self, dim: int, aggregation: str = "I2", temperature: float = 0.1) -> None:
        super().__init__()
        check_known("turn aggregation", aggregation, AGGREGATIONS)
        self.temperature, self.names = temperature, {"aggregation": aggregation, "temperature": temperature}
        self.attention = _layers(dim, 1) if aggregation == "I1" else None

    def terms(self, encoder, batch: Batch) -> Tensors:
        states, packed = encoder.hidden(batch.tokens["texts"])
        means = encoder.pool(states, packed, "mean")
        turns, candidates = (batch.tensor(name, states.device) for name in ("turns", "candidates"))
        tokens, mask = _padded(states, packed, candidates)
        loss = losses.matching_guided_loss(
            means[turns][:, :, None], (turns >= 0)[..., None], tokens, mask, **self.names, attention=self.attention
        )
        return {"matching": loss}


class SiameseObjective(Objective):
    """The SiameseBERT baselines, whose network the paper does not describe: context through Linear-ReLU-Linear, dot
    product with every candidate of its group; or, on ``both`` sides, that network on [c; r; |c - r|]; or that network
    asked about each candidate for itself (``pointwise``): is it the true one? (binary cross-entropy).

    "-s" and "-m" differ in the examples: a context of one turn, or several flattened into one sequence.
    """

    def __init__(self, dim: int, both: bool = False, pointwise: bool = False) -> None:
        super().__init__()
        self.both, self.pointwise = both or pointwise, pointwise
        self.names = {"both": both, "pointwise": pointwise}
        self.matching = _layers(3 * dim, 1, dim) if self.both else _layers(dim, dim)

    def terms(self, encoder, batch: Batch) -> Tensors:
        vectors = encoder.embed(batch.tokens["texts"], "mean")
        turns, candidates = (batch.tensor(name, vectors.device) for name in ("turns", "candidates"))
        context, replies = vectors[turns[:, 0]], vectors[candidates]
        if not self.both:
            return {"matching": losses.siamese_matching_loss(self.matching(context), replies)}
        context = context[:, None].expand_as(replies)
        scores = self.matching(torch.cat([context, replies, (context - replies).abs()], -1))
        if self.pointwise:
            true = torch.zeros_like(scores).index_fill_(1, turns.new_zeros(1), 1.0)  # the first of each group
            return {"matching": nn.functional.binary_cross_entropy_with_logits(scores, true)}
        return {"matching": losses.siamese_matching_loss(scores.new_ones(len(scores), 1), scores)}


def _layers(dim: int, out: int, hidden: int = 0) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, hidden or dim), nn.ReLU(), nn.Linear(hidden or dim, out))


def _padded(states: Tensor, packed: Packed, sequences: Tensor) -> tuple[Tensor, Tensor]:
    """Token vectors ``[..., n, d]`` and mask ``[..., n]`` of the given sequences of a packed batch."""
    lengths = packed.lengths[packed.rank[sequences]]
    positions = torch.arange(packed.max_length, device=states.device)
    mask = positions < lengths[..., None]
    places = packed.places(sequences[..., None], torch.where(mask, positions, 0))
    return states[places], mask
