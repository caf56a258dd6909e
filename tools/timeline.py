"""A run in time: its stages as bars, packed as workers would do them, and what the GPU did meanwhile.

    python -m tools.timeline RUN [--gpu FILE] -o figures/engine/NAME.png

The file is the `gpu.csv` that a run leaves in its folder where `nvidia-smi` is, or another of the same columns.

Stages that a run found in the cache are counted, not drawn. A record does not say what a stage waited for, so the chain
of waiting is read from the times: before every stage, from the last one back, the one that ended last.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import ceil, inf
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas import DataFrame

from dialnb.errors import DataError, DialnbError
from dialnb.files import Values
from dialnb.plots.style import BLUE, DASHES, GREEN, INK, ORANGE, PURPLE, SKY, SOFT, STYLE, WIDE, canvas, save
from dialnb.runs.tools import open_run

KINDS = {"raw start": PURPLE, "training": BLUE, "fine-tuning": ORANGE, "other evaluation": SKY}
GPU = ("time", "busy", "traffic", "memory", "power")
"""Columns of the GPU's file: when, % of the time that it computed, % that it moved memory, MiB in use, watts."""

SLACK = 2.0
"""Seconds within which several stages count as the last to end; the longest of them is taken for the one waited for."""
LABELLED = 8


def kind_of(stage: Values) -> str:
    """What a stage did, as its record tells: trainings leave their facts there."""
    if stage["name"].startswith(("raw start", "train raw")):
        return "raw start"
    if "training" in stage.get("facts", {}):
        return "training"
    return "fine-tuning" if "finetun" in stage.get("function", "") else "other evaluation"


def stages_of(run: Values, name: str) -> DataFrame:
    """The stages that a run made, by their beginning: name, kind, start and end in seconds since the run's own start,
    the lane they are drawn in, and whether they are on the chain of waiting."""
    made = [stage for stage in run.get("stages", ()) if not stage["cached"]]
    made = list({stage.get("key", stage["name"]): stage for stage in reversed(made)}.values())  # models may share one
    if not made:
        why = "all of its stages are from the cache" if run.get("stages") else "it has no stages"
        raise DataError(f"{name} has nothing to draw: {why}")
    if lacking := [stage["name"] for stage in made if not stage.get("made") or stage.get("seconds") is None]:
        raise DataError(f"{name} does not say when its stages were made, e.g. {lacking[0]}; run it again")
    ends = (pd.to_datetime([stage["made"] for stage in made], utc=True) - began(run)).total_seconds()
    own = f", seed {run['parameters']['seed']}"
    names = [stage["name"].removesuffix(own) for stage in made]
    rows = DataFrame({"name": names, "kind": [kind_of(stage) for stage in made]})
    rows = rows.assign(end=ends, seconds=[stage["seconds"] for stage in made])
    rows = rows.assign(start=rows["end"] - rows["seconds"]).sort_values(["start", "end"], ignore_index=True)
    return rows.assign(lane=lanes(rows), chained=rows.index.isin(chain(rows)))


def began(run: Values) -> pd.Timestamp:
    """When a run began."""
    return pd.Timestamp(run["started"])


def minutes_of(run: Values) -> float:
    """How long a run took, as its clock says."""
    return (pd.Timestamp(run["updated"]) - began(run)).total_seconds() / 60


def lanes(stages: DataFrame) -> list[int]:
    """For every stage the first lane that is free when it starts."""
    free: list[float] = []
    found = []
    for stage in stages.itertuples():
        lane = next((number for number, end in enumerate(free) if end <= stage.start), len(free))
        free[lane : lane + 1] = [stage.end]
        found.append(lane)
    return found


def chain(stages: DataFrame) -> list[int]:
    """The stages that the end of the run waited for, from the last one back."""
    found, begins = [], inf
    while len(before := stages[stages["end"] <= begins]):
        last = before[before["end"] >= before["end"].max() - SLACK]
        found.append(last["seconds"].idxmax())
        begins = min(stages.loc[found[-1], "start"], before["end"].max() - 1e-9)
    return found


def gpu_of(path: Path, run: Values, zone: float = 0.0) -> DataFrame:
    """What the GPU did during a run: `GPU`, with the time in seconds since its start; ``zone`` is how many hours the
    file's clock is ahead of UTC."""
    try:
        text = pd.read_csv(path, header=None, names=GPU, index_col=False, dtype=str, on_bad_lines="skip")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table of nvidia-smi: {error}") from error
    times = pd.to_datetime(text["time"].str.strip(), format="%Y/%m/%d %H:%M:%S.%f", errors="coerce", utc=True)
    rows = text[[*GPU[1:]]].apply(lambda column: pd.to_numeric(column.str.extract(r"([\d.]+)")[0], errors="coerce"))
    rows.insert(0, "time", (times - pd.Timedelta(hours=zone) - began(run)).dt.total_seconds())
    rows = rows.dropna(subset=["time", "busy"])
    if rows.empty:
        raise DataError(f"{path} has no line like '2026/11/17 14:53:01.123, 97 %, 12 %, 10240 MiB, 350.12 W'")
    during = rows[rows["time"].between(0, 60 * minutes_of(run))]
    if during.empty:
        first, last = (began(run) + pd.Timedelta(seconds=rows["time"].agg(end)) for end in ("min", "max"))
        raise DataError(
            f"{path} is of another time: {first:%F %T} to {last:%F %T} UTC, and the run from {began(run):%F %T} to "
            f"{pd.Timestamp(run['updated']):%F %T}; if its clock is not UTC, say how many hours it is ahead (--zone)"
        )
    return during


def longest(stages: DataFrame) -> DataFrame:
    """The stages that are labelled, the longest first."""
    return stages.nlargest(LABELLED, "seconds").reset_index(drop=True)


def timeline(run: Values, stages: DataFrame, gpu: DataFrame | None = None) -> Figure:
    """The stages in lanes over minutes, the longest numbered and named below, and the GPU's use on the same axis."""
    with matplotlib.rc_context(STYLE):
        named, cached = longest(stages), sum(stage["cached"] for stage in run["stages"])
        key = 0.22 * ceil(len(named) / 2) + 0.1
        heights = [max(1.2, 0.24 * (stages["lane"].max() + 1)), *([1.5] if gpu is not None else []), key]
        figure = canvas(WIDE, sum(heights) + 1.5)
        *panels, names = figure.subplots(len(heights), 1, height_ratios=heights)
        more = f", {cached} more from the cache" if cached else ""
        panels[0].set_title(f"{run['slug']}, {run['profile']} profile: {len(stages)} stages made{more}", loc="left")
        _draw_stages(panels[0], stages, named)
        if gpu is not None:
            panels[0].tick_params(labelbottom=False)
            _draw_gpu(panels[1], gpu)
        ends = min(0, stages["start"].min() / 60), max(minutes_of(run), stages["end"].max() / 60)
        for panel in panels:
            panel.set_xlim(ends)
            panel.grid(axis="x")
        panels[-1].set_xlabel("minutes since the run began")
        names.axis("off")
        for place, stage in enumerate(named.itertuples()):
            column, row = divmod(place, ceil(len(named) / 2))
            where = {"transform": names.transAxes, "size": "small", "va": "top"}
            names.text(0.5 * column, 1 - 0.22 * row / key, _line(place, stage, 48), **where)
        shown: list[Artist] = []
        shown += [Patch(color=colour, label=kind) for kind, colour in KINDS.items() if kind in set(stages["kind"])]
        shown.append(Line2D([], [], color=INK, lw=2, label="chain of waiting"))
        figure.legend(handles=shown, loc="outside lower center", ncols=len(shown), columnspacing=1.2, handlelength=1.4)
    return figure


def _line(place: int, stage: Any, most: int = 80) -> str:
    """A stage of the key, with its number."""
    name = stage.name if len(stage.name) <= most else f"{stage.name[: most - 1]}…"
    return f"{place + 1}  {name}, {stage.seconds:,.0f} s"


def _draw_stages(axes: Axes, stages: DataFrame, named: DataFrame) -> None:
    minutes = stages.assign(start=stages["start"] / 60, width=stages["seconds"] / 60)
    chained = minutes[minutes["chained"]]
    axes.barh("lane", "width", 0.84, "start", data=minutes, color=minutes["kind"].map(KINDS), ec="white", lw=0.4)
    axes.barh("lane", "width", 0.84, "start", data=chained, color="none", ec=INK, lw=1.3)
    for one, other in zip(chained.itertuples(), chained[1:].itertuples()):
        gap = [one.start + one.width, other.start], [one.lane, other.lane]
        axes.plot(*gap, color=INK, lw=1.2, ls=DASHES[2])
    for place, stage in enumerate(named.itertuples()):
        middle = stage.start / 60 + stage.seconds / 120
        box = {"boxstyle": "circle,pad=0.15", "fc": "white", "ec": INK, "lw": 0.6}
        axes.text(middle, stage.lane, str(place + 1), size="x-small", ha="center", va="center", bbox=box)
    most = stages["lane"].max() + 1
    axes.set(yticks=[], ylim=(most - 0.4, -0.6), ylabel=f"{most} at once")


def _draw_gpu(axes: Axes, gpu: DataFrame) -> None:
    minutes, mean = gpu["time"] / 60, gpu["busy"].mean()
    axes.fill_between(minutes, gpu["busy"], step="post", color=GREEN, alpha=0.35, lw=0)
    axes.plot(minutes, gpu["traffic"], color=SOFT, lw=0.8)
    axes.axhline(mean, color=INK, lw=1.2, ls=DASHES[1])
    axes.set(ylim=(0, 100), yticks=[0, 50, 100], ylabel="GPU (%)")
    said = f"busy (green), {mean:.0f} % on average; moving memory (grey), {gpu['traffic'].mean():.0f} %"
    axes.set_title(said, loc="left", weight="normal", size="small")


def report(run: Values, stages: DataFrame, gpu: DataFrame | None = None) -> str:
    """The same in words: minutes, how busy the GPU was, work over time, the longest stages, the chain."""
    minutes, cached = minutes_of(run), sum(stage["cached"] for stage in run["stages"])
    work = stages["seconds"].sum() / 60
    lines = [f"{minutes:.1f} minutes in all; {len(stages)} stages made, {cached} from the cache"]
    lines.append(f"{work:.1f} minutes of stages: {work / minutes:.2f} times the run's own")
    if gpu is not None:
        busy, traffic, power = (gpu[name].mean() for name in ("busy", "traffic", "power"))
        most = gpu["memory"].max() / 1024
        lines.append(f"GPU busy {busy:.1f} % of the time (moving memory {traffic:.1f} %), {power:.0f} W on ")
        lines[-1] += f"average, at most {most:.1f} GiB; {len(gpu)} samples"
    lines += ["longest stages:", *(f"  {_line(*pair)}" for pair in enumerate(longest(stages).itertuples()))]
    chained = stages[stages["chained"]]
    lines.append(f"chain of waiting: {len(chained)} stages, {chained['seconds'].sum() / 60:.1f} minutes of work")
    told = chained[chained["seconds"] > 0.6 * minutes]  # more than a hundredth of the run
    lines += [f"  {stage.start / 60:6.1f} min  {stage.name}, {stage.seconds:,.0f} s" for stage in told.itertuples()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a run and say how its time went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--gpu", type=Path, metavar="FILE", help="default: gpu.csv in the run's folder, if any")
    parser.add_argument("--zone", type=float, default=0.0, metavar="HOURS", help="its clock is ahead of UTC by so many")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="PNG")
    options = parser.parse_args(arguments)
    try:
        run = open_run(options.run)
        stages = stages_of(run, str(options.run))
        kept = options.run / "gpu.csv"
        place = options.gpu or (kept if kept.is_file() else None)
        gpu = place and gpu_of(place, run, options.zone)
        save(timeline(run, stages, gpu), options.out.with_suffix(""), ["png"])
    except DialnbError as error:
        parser.exit(1, f"timeline: {error}\n")
    print(report(run, stages, gpu))


if __name__ == "__main__":
    main()
