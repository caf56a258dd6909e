"""What a run has found: tidy rows, and the tables, figures and claims that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from matplotlib.figure import Figure
from pandas import DataFrame

from dialnb.claims import judge_claims, load_claims, training_shares
from dialnb.claims.comparison import compare_table
from dialnb.claims.papers import select
from dialnb.errors import DialnbError
from dialnb.files import MEASURED, say
from dialnb.models.places import encoder_name
from dialnb.runs.answers import Answers
from dialnb.runs.figures import save_figure
from dialnb.runs.grid import Trained, joined, with_labels
from dialnb.runs.profiles import PROFILES, Settings, load_profiles
from dialnb.runs.record import Record

AS_IT_COMES = "as it comes"


class Sentence(str):
    """Text that a notebook shows as text, without the quotes of a string."""

    def _repr_markdown_(self) -> str:
        return self


class Evaluation(NamedTuple):
    """What :meth:`Run.evaluate` asked and has not kept yet, and the tables that its rows go to (None: any)."""

    answers: Answers
    tables: set[str] | None
    keep: Callable[[DataFrame], DataFrame]


class Findings(Record):
    """The results of a run; whoever looks at them waits for what was asked."""

    def __init__(self, slug: str, profile: str, settings: Settings, folder: Path, root: Path) -> None:
        super().__init__(slug, profile, settings, folder)
        self.root, self.judged = root, None
        self._results, self._items = DataFrame(), DataFrame()
        self._evaluations: list[Evaluation] = []
        self._tables: dict[str, Any] = {}
        self._profiles = load_profiles(slug, root)

    @property
    def start(self) -> str:
        """How rows name the encoder that the models of this run start from."""
        again = self.settings.get("raw_start", AS_IT_COMES)
        return self.settings["encoder"] if again == AS_IT_COMES else f"{self.settings['encoder']}, {again}"

    def wants(self, name: str, **rows: Any) -> bool:
        """Whether the profile takes a model or a table: those that a list of its parameters offers must be in it. If
        not, the reason is noted for the ``rows`` (as in `note_absent`), where these are named."""
        takes = self._profiles.takes(name, self.settings)
        if rows and not takes:
            self.note_absent(self.left_out(name), **rows)
        return takes

    def left_out(self, name: str = "") -> str:
        """The reason of what the profile leaves out, with the smallest larger one that has it."""
        larger = PROFILES[max(PROFILES.index(self.profile) + 1, 0 if name else 2) :]
        for each in larger:
            if each in self._profiles.profiles and self._profiles.takes(name, self._profiles.resolve(each)):
                return f"left out of the {self.profile} profile to keep its time; it runs with '{each}'"
        return f"left out of the {self.profile} profile to keep its time"

    def _settle(self, *tables: str) -> None:
        """Wait for what was asked for these tables (or for all), and keep its rows in the order of asking."""
        for evaluation in self._evaluations.copy():
            if not tables or evaluation.tables is None or evaluation.tables & {*tables}:
                try:
                    rows, items = evaluation.answers.rows, evaluation.answers.items
                except Exception:  # its cell can be run again
                    self._evaluations.remove(evaluation)
                    raise
                self._evaluations.remove(evaluation)
                if len(items):
                    self.add_items(items)
                if len(rows):
                    self.add(evaluation.keep(rows))

    @property
    def results(self) -> DataFrame:
        """All tidy rows; waits for what was evaluated."""
        self._settle()
        return self._results

    @property
    def items(self) -> DataFrame:
        """What each test item scored, of everything that was evaluated."""
        self._settle()
        return self._items

    def add(self, rows: DataFrame, **labels: Any) -> Self:
        """Keep tidy rows, with `labels` (model, table ...) as further columns; the run's encoder and the seed of its
        trainings unless they are named.

        A measurement that is there already is replaced, so that a cell can be run twice.
        """
        if "value" not in rows:
            raise DialnbError(f"results are tidy rows with a column 'value', not {', '.join(map(str, rows.columns))}")
        usual = {"encoder": self.start} if "encoder" in self.settings else {}
        rows = with_labels(rows.assign(**labels), usual | {"train_seed": self.settings["seed"]})
        if "encoder" in rows:
            rows["encoder"] = rows["encoder"].map(encoder_name, na_action="ignore")
        self._results = _latest([self._results, rows], MEASURED)
        return self

    def add_items(self, rows: DataFrame, **labels: Any) -> Self:
        """Keep what each test item scored (tidy rows with a column `item`), for comparisons paired over items."""
        rows = with_labels(rows.assign(**labels), {"train_seed": self.settings["seed"]})
        if "encoder" in rows:
            rows["encoder"] = rows["encoder"].map(encoder_name, na_action="ignore")
        self._items = _latest([self._items, rows], ("value",))
        return self

    def rows(self, table: str) -> DataFrame:
        """The tidy rows of one table so far; waits for what was evaluated for it."""
        self._settle(table)
        return self._results[self._results["table"] == table] if "table" in self._results else self._results

    def summary(
        self, table: str, index: list[str], columns: list[str], digits: int = 2, **where: Any
    ) -> DataFrame | Sentence:
        """Means over seeds of a table's rows by ``index`` and ``columns``, for what the paper does not print; without
        rows, the sentence that says why."""
        rows = select(self.rows(table), where)
        if rows.empty:
            reasons = [entry["reason"] for entry in self.missing if entry["table"] == table]
            return Sentence(f"Not run: {(reasons or [self.left_out()])[0]}.")
        rows = rows.assign(**rows[[*index, *columns]].convert_dtypes())  # shots and candidates are whole numbers
        return rows.pivot_table("value", index, columns, sort=False).round(digits)

    def times(self, trained: Trained) -> DataFrame:
        """What the trainings took; the whole table goes to `tables/`, the first lines are shown."""
        times = self._tables["training-times"] = trained.times()
        if len(times) > 8:
            say(f"the first 8 of {len(times)} trainings; tables/training-times.csv has all of them")
        return times.head(8)

    def table(self, table: str) -> Any:
        """The published table with ours beside it, to be shown; written to `tables/` when the run finishes."""
        shown = self.rows(table)
        if (self.root / "papers" / self.slug / "cells.yaml").is_file():
            rest = {"table": table, "reason": self.left_out()}  # for cells that nothing else explains
            shown = compare_table(self.slug, table, self._results, [*self.missing, rest])
            shown = replace(shown, command=self.command(table))
        self._tables[table] = shown
        return shown

    def command(self, table: str) -> str:
        """The one command that makes a table of this run."""
        command = f"dialnb run {self.slug} --profile {self.profile} --seed {self.settings['seed']}"
        if "encoder" in self.settings.by_hand:
            command += f" --encoder {encoder_name(self.settings['encoder'])}"
        if table in getattr(self._profiles.parameters.get("tables"), "choices", ()):
            command += f" --set tables={table}"
        return command

    def figure(
        self,
        name: str,
        figure: Callable[..., Figure] | Figure,
        *,
        data: DataFrame,
        caption: str,
        alt: str,
        otherwise: str = "",
        **arguments: Any,
    ) -> Figure | Sentence:
        """Save a figure with the data it was drawn from. Give a function of `dialnb.plots` to be called with `data` and
        `arguments`: such a figure can be drawn again in another style or format (`dialnb figures`).

        Without data it is not drawn: the reason, ``otherwise``, is noted and stands in its place.
        """
        if data.empty:
            reason = otherwise or self.left_out(name)
            self.note_absent(reason, name)
            return Sentence(f"Not drawn: {reason}.")
        return save_figure(self.folder / "figures", name, figure, data, caption, alt, arguments)

    def claims(self) -> Any:
        """The paper's claims, judged on the results so far."""
        items = None if self.items.empty else self.items
        shares = training_shares(self._tables.get("training-times"), self.slug, self.settings)
        tables = [table for claim in load_claims(self.slug) for table in claim.tables if self.rows(table).empty]
        reasons = [{"table": table, "reason": self.left_out()} for table in tables]
        self.judged = judge_claims(self.slug, self.results, self.missing + reasons, items, shares)
        return self.judged


def _latest(parts: Sequence[DataFrame], measured: Iterable[str]) -> DataFrame:
    """Rows one below the other; of those that differ in nothing but what was measured, the last."""
    rows = joined(parts)
    identity = [name for name in rows if name not in measured]
    return rows.drop_duplicates(identity, keep="last", ignore_index=True)
