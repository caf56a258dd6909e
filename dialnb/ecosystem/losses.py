"""The papers' objectives as losses for ``SentenceTransformerTrainer``, over the functions of `dialnb.losses`.

Every loss takes the SentenceTransformer that is trained. A ``head`` is a small network on top of its vectors that the
papers train along and drop afterwards: ``"contrastive"``, ``"tanh"``, ``"linear"`` or ``"none"``.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from dialnb import losses
from dialnb.ecosystem import citation
from dialnb.training.objectives import HEADS, MatchingGuidedObjective

Features = Iterable[dict[str, Tensor]]


def width_of(model: Any) -> int:
    """The number of dimensions of a SentenceTransformer, which newer versions call by another name."""
    ask = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    return ask()


class DialogueLoss(nn.Module):
    """What the losses share: a head over the model's vectors, a description for model cards, a citation."""

    paper = ""

    def __init__(self, model: nn.Module, head: str, **options: Any) -> None:
        super().__init__()
        self.model = model
        self.head = HEADS[head](width_of(model))
        self.options = options
        self.described = {"head": head, **options}

    def vectors(self, features: dict[str, Tensor]) -> Tensor:
        """Vectors [batch, d] of one column of texts, after the head."""
        return self.head(self.model(dict(features))["sentence_embedding"])

    def get_config_dict(self) -> dict[str, Any]:
        return self.described

    @property
    def citation(self) -> str:
        return citation(self.paper)


class HardNegativeNTXentLoss(DialogueLoss):
    """DSE: pull consecutive utterances together, push all others of the batch away, the nearest ones most.

    Also called hard-negative NT-Xent, or InfoNCE with hard negatives weighted up. With ``form="plain"`` and no head it
    is the NT-Xent of SimCLR.

    Args:
        model: the SentenceTransformer that is trained.
        temperature: divides the cosines.
        form: ``"code"`` is what the authors ran, ``"plain"`` leaves out the weights of hard negatives; see
            :func:`dialnb.losses.hard_negative_loss`.
        head: network over the vectors in training.

    References:
        - Learning Dialogue Representations from Consecutive Utterances: https://arxiv.org/abs/2205.13568

    Requirements:
        1. Pairs of utterances that follow each other; the other pairs of a batch are the negatives.

    Inputs:
        +---------------------------------------+--------+
        | Inputs                                | Labels |
        +=======================================+========+
        | (utterance, next utterance) pairs     | none   |
        +---------------------------------------+--------+

    Recommendations:
        - Use ``BatchSamplers.NO_DUPLICATES``, so that no utterance is its own negative.

    Relations:
        - ``MultipleNegativesRankingLoss`` has one side as anchors and equal weights for all negatives.

    Example:
        ::

            from datasets import Dataset
            from dialnb.ecosystem.losses import HardNegativeNTXentLoss
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

            model = SentenceTransformer("microsoft/mpnet-base")
            train_dataset = Dataset.from_dict({
                "utterance": ["I need a table for two.", "Is there a bus to the station?"],
                "next": ["At what time?", "Number 5 goes there."],
            })
            loss = HardNegativeNTXentLoss(model)
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=loss)
            trainer.train()
    """

    paper = "dse"

    def __init__(
        self, model: nn.Module, temperature: float = 0.05, form: str = "code", head: str = "contrastive"
    ) -> None:
        super().__init__(model, head, temperature=temperature, form=form)

    def forward(self, sentence_features: Features, labels: Tensor | None = None) -> Tensor:
        first, second = map(self.vectors, sentence_features)
        return losses.hard_negative_loss(first, second, **self.options)


class WeightedSymmetricLoss(DialogueLoss):
    """WMDC: match contexts with their responses in both directions, frequent responses counting less.

    Also called symmetric InfoNCE (as in CLIP) with inverse response frequency (IRF) as weights.

    Args:
        model: the SentenceTransformer that is trained.
        temperature: divides the cosines.
        head: network over the vectors in training. WMDC has one for every size of the context window: give one loss
            per window to the trainer, as a dictionary with the names of the datasets.

    References:
        - Dialogue Representation Learning: A New Benchmark and Weighted Contrastive Learning Approach (anonymous
          submission)

    Requirements:
        1. Pairs of a context and its response; the other pairs of a batch are the negatives.

    Inputs:
        +-------------------------------+-----------------------------------------------------------+
        | Inputs                        | Labels                                                    |
        +===============================+===========================================================+
        | (context, response) pairs     | how often the response occurs in the corpus, at least 1   |
        +-------------------------------+-----------------------------------------------------------+
        | (context, response) pairs     | none: all weigh the same                                  |
        +-------------------------------+-----------------------------------------------------------+

    Relations:
        - ``MultipleNegativesSymmetricRankingLoss`` is the same without weights.

    Example:
        ::

            from datasets import Dataset
            from dialnb.ecosystem.losses import WeightedSymmetricLoss
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

            model = SentenceTransformer("microsoft/mpnet-base")
            train_dataset = Dataset.from_dict({
                "context": ["A table for two. [SEP] At what time?", "Shall I book it?"],
                "response": ["At eight, please.", "Yes."],
                "label": [3, 5371],
            })
            loss = WeightedSymmetricLoss(model)
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=loss)
            trainer.train()
    """

    paper = "wmdc"

    def __init__(self, model: nn.Module, temperature: float = 0.05, head: str = "linear") -> None:
        super().__init__(model, head, temperature=temperature)

    def forward(self, sentence_features: Features, labels: Tensor | None = None) -> Tensor:
        context, response = map(self.vectors, sentence_features)
        weights = None if labels is None else losses.inverse_response_frequency(labels)
        return losses.weighted_symmetric_loss(context, response, weights, **self.options)


class TemplateLoss(DialogueLoss):
    """TaDSE: utterances, their templates (slots in place of values), and the two together, each seen twice.

    Also called template-aware contrastive loss: the sum of SimCSE's loss on utterances, SimCSE's loss on templates,
    and InfoNCE between the two.

    Args:
        model: the SentenceTransformer that is trained; its dropout makes the second view of a text.
        head: network over the vectors in training.
        options: temperatures, weights and direction of :func:`dialnb.losses.template_losses`.

    References:
        - TaDSE: Template-aware Dialogue Sentence Embeddings: https://arxiv.org/abs/2305.14299

    Requirements:
        1. Utterances with their templates, such as "fly to Boston" and "fly to [city]".

    Inputs:
        +-------------------------------+-------------------------------------------------------------+
        | Inputs                        | Labels                                                      |
        +===============================+=============================================================+
        | (utterance, template) pairs   | none                                                        |
        +-------------------------------+-------------------------------------------------------------+
        | (utterance, template) pairs   | number of the template: equal ones are no negatives         |
        +-------------------------------+-------------------------------------------------------------+

    Example:
        ::

            from datasets import Dataset
            from dialnb.ecosystem.losses import TemplateLoss
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

            model = SentenceTransformer("microsoft/mpnet-base")
            train_dataset = Dataset.from_dict({
                "utterance": ["fly to Boston", "play some jazz"],
                "template": ["fly to [city]", "play some [genre]"],
            })
            loss = TemplateLoss(model, weight_pair=0.5)
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=loss)
            trainer.train()
    """

    paper = "tadse"

    def __init__(self, model: nn.Module, head: str = "tanh", **options: Any) -> None:
        super().__init__(model, head, **options)

    def forward(self, sentence_features: Features, labels: Tensor | None = None) -> Tensor:
        utterance, template = sentence_features
        views = [self.vectors(texts) for texts in (utterance, utterance, template, template)]
        return losses.template_losses(*views, **self.options, template_ids=labels).total


class MatchingGuidedLoss(DialogueLoss):
    """DialogueCSE: pick the true response by how well each candidate agrees with its context-aware version.

    Also called matching-guided contrastive loss: the tokens of a candidate are weighted by their match with the
    tokens of every turn of the context (Eq. 8 of the paper).

    Args:
        model: the SentenceTransformer that is trained, with mean pooling.
        turns: how many of the columns, from the left, are turns of the context. A shorter context has empty texts.
        aggregation: ``"I2"`` averages the turns, ``"I1"`` weighs them by a small network.
        temperature: divides the cosines.

    References:
        - DialogueCSE: Dialogue-based Contrastive Learning of Sentence Embeddings: https://arxiv.org/abs/2109.12599

    Requirements:
        1. Contexts of several turns, each with its response and at least one other utterance as a negative.

    Inputs:
        +-------------------------------------------------------------------------+--------+
        | Inputs                                                                  | Labels |
        +=========================================================================+========+
        | (turn_1, ..., turn_n, response, negative_1, ..., negative_m) tuples     | none   |
        +-------------------------------------------------------------------------+--------+

    Example:
        ::

            from datasets import Dataset
            from dialnb.ecosystem.losses import MatchingGuidedLoss
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

            model = SentenceTransformer("microsoft/mpnet-base")
            train_dataset = Dataset.from_dict({
                "turn_1": ["I need a table."],
                "turn_2": ["For how many?"],
                "response": ["For two."],
                "negative": ["Number 5 goes there."],
            })
            loss = MatchingGuidedLoss(model, turns=2)
            trainer = SentenceTransformerTrainer(model=model, train_dataset=train_dataset, loss=loss)
            trainer.train()
    """

    paper = "dialoguecse"

    def __init__(self, model: Any, turns: int, aggregation: str = "I2", temperature: float = 0.1) -> None:
        super().__init__(model, "none", aggregation=aggregation, temperature=temperature)
        self.described |= {"turns": turns}
        self.turns = turns
        self.attention = MatchingGuidedObjective(width_of(model), aggregation, temperature).attention
        self.special = model.tokenizer.num_special_tokens_to_add()

    def tokens(self, columns: list[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
        """Token vectors [batch, columns, n, d] and their mask [batch, columns, n]; an empty text has no tokens."""
        states = []
        masks = []
        for features in columns:
            outputs = self.model(dict(features))
            mask = outputs["attention_mask"].bool()
            has_words = mask.sum(1, keepdim=True) > self.special
            states.append(outputs["token_embeddings"].transpose(0, 1))
            masks.append((mask & has_words).T)
        return pad_sequence(states).permute(2, 1, 0, 3), pad_sequence(masks).permute(2, 1, 0)

    def forward(self, sentence_features: Features, labels: Tensor | None = None) -> Tensor:
        columns = list(sentence_features)
        context = self.tokens(columns[: self.turns])
        candidates = self.tokens(columns[self.turns :])
        return losses.matching_guided_loss(*context, *candidates, **self.options, attention=self.attention)
