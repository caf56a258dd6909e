"""Tasks asked of trained models: questions that are submitted, and answers that are waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from pandas import DataFrame

from dialnb.data import Dataset
from dialnb.evaluation.floors import ask_words
from dialnb.files import Fields, Values
from dialnb.runs.grid import LAYERS, TRAIN_SEED, Models, Submit, Task, Trained, joined, read_as, with_labels
from dialnb.runs.scheduler import Job, Stage
from dialnb.training.stage import Result


class Question(NamedTuple):
    """A task on a dataset, asked of one training of a model (or of a floor)."""

    model: str
    seed: int
    dataset: str
    task: Task

    def __str__(self) -> str:
        return f"{self.task.title}: {self.model} on {self.dataset}, seed {self.seed}"


class Answer(NamedTuple):
    """What one question gave: rows with their labels and, where the function gave more than rows, all of that."""

    question: Question
    rows: DataFrame
    more: Fields


class Answers:
    """Questions that were submitted; whoever goes through the answers, or looks at all rows, waits for them.

    ``origin(question)`` gives the columns that tell the trainings of a row apart.
    """

    def __init__(
        self, stages: Mapping[Question, Stage], models: Models, origin: Callable[[Question, Models], Values]
    ) -> None:
        self.stages, self.models, self.origin = stages, models, origin

    def __iter__(self) -> Iterator[Answer]:
        for question, stage in self.stages.items():
            answer = stage.result()
            if answer is not None:
                more = answer if isinstance(answer, dict) else {"rows": answer}
                yield Answer(question, with_labels(more["rows"], self._labels(question)), more)

    def read_better(self, trained: Trained, choose: Callable[[DataFrame], Mapping[str, str]]) -> Trained:
        """The same models; those that were asked are read with the pooling that ``choose(rows)`` names for them, when
        all answers are there."""
        asked = {question.model for question in self.stages}
        stages = trained.stages.copy()
        for (name, seed), stage in trained.stages.items():
            if name in asked:
                plan = partial(self._read_better, name, choose)
                stages[name, seed] = stage.scheduler.submit("", plan, [stage, *self.stages.values()])
        return Trained(trained.models, stages)

    def _read_better(self, name: str, choose: Callable[..., Any], result: Result, *_: Any) -> Result:
        return read_as(choose(self.rows).get(name, ""), result)

    def _labels(self, question: Question) -> Values:
        return question.task.labels_of(question.model, self.models.get(question.model))

    @cached_property
    def rows(self) -> DataFrame:
        """All rows, one below the other."""
        parts = [with_labels(rows, self.origin(question, self.models)) for question, rows, _ in self]
        return joined(parts, "value", "table", "model", "protocol")

    @cached_property
    def items(self) -> DataFrame:
        """What each test item scored, of the tasks that keep it."""
        parts = []
        for question, _, more in self:
            if "items" in more and question.task.table and question.task.items:
                labels = self.origin(question, self.models) | self._labels(question)
                parts.append(with_labels(more["items"], labels))
        return joined(parts)


def questions(
    tasks: Iterable[tuple[Task, Mapping[str, Dataset]]],
    trained: Trained,
    profile: Fields,
    seeds: Sequence[int],
    pieces: Stage | None,
    submit: Submit,
) -> dict[Question, Stage]:
    """Submit every task with its datasets to every model, then to the floors, whose words are the ``pieces`` of a
    model, as far as models see them; a floor has a row for every training."""
    models: dict[Question, Stage] = {}
    floors: list[tuple[Question, Callable[..., Any]]] = []
    every = dict.fromkeys([*seeds, *(seed for _, seed in trained.stages)])
    for task, datasets in tasks:
        for dataset, records in datasets.items():
            given = {"records": records, "dataset": dataset, **task.values(profile)}
            for (name, seed), stage in trained.stages.items():
                if not task.only or name in task.only:
                    question = Question(name, seed, dataset, task)
                    models[question] = submit(str(question), partial(_ask, task.evaluate, given, seed), [stage])
            for floor, function in task.floors.items() if pieces else ():
                words = {"evaluate": function or task.evaluate, "floor": floor}
                for seed in every:
                    floors.append((Question(floor, seed, dataset, task), partial(_ask, ask_words, given | words, seed)))
    return models | {question: submit(str(question), plan, [pieces]) for question, plan in floors}


def _ask(evaluate: Callable[..., Any], given: Values, seed: int, result: Result) -> Job | None:
    if result.failed:
        return None
    inputs = {"encoder": result.model} | given
    for name, value in given.items():
        if value is TRAIN_SEED:
            inputs[name] = seed
        elif value is LAYERS:
            inputs[name] = result.layers
    return Job(evaluate, inputs)
