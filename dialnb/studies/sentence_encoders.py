"""Sentence encoders of the other notebooks as they train them in the same profile: equal inputs, hence their stages."""

from __future__ import annotations

from types import SimpleNamespace

from dialnb.models.encoder import Encoder
from dialnb.runs.grid import job_of
from dialnb.runs.profiles import load_profiles
from dialnb.studies import common, dialoguecse, tadse_data, tadse_models, wmdc
from dialnb.studies.common import settings_for
from dialnb.studies.training import Step, training

ENGLISH = ("English", "BERT")
"""The place of the run's own encoder among those that steps start from."""

DSE = ("SimCSE-unsup", "TOD-BERT", "DSE")
MATCHING = "DialogueCSE I2"


def elsewhere(run, slug: str) -> SimpleNamespace:
    """What another notebook would be in this profile, as far as its training looks: settings, and nothing noted."""
    settings = load_profiles(slug, run.root).resolve(run.profile, run.settings.seed, run.settings.encoder)
    return SimpleNamespace(settings=settings, profile=run.profile, root=run.root, not_run=lambda *_, **__: None)


def sentence_steps(run, raw: Encoder) -> tuple[list[Step], dict[str, str]]:
    """The steps that train the profile's ``sentence_encoders``, and which of them gives which.

    TaDSE starts from the SimCSE of the DSE notebook, DialogueCSE from an encoder that was adapted to its corpus.
    """
    wanted = run.settings.sentence_encoders
    steps, places = [], {}
    for name in [name for name in DSE if name in wanted or (name == "SimCSE-unsup" and "TaDSE" in wanted)]:
        other = elsewhere(run, "dse")
        s = other.settings
        job = training(name, raw, common.corpus(other), settings_for(s, name), s.dialogues, s.tail_quirk)
        steps.append(Step(f"train {name}", ENGLISH, lambda _, job=job: job, ("sentences", name)))
        places |= {name: f"train {name}"} if name in wanted else {}
    if "WMDC" in wanted:
        other = elsewhere(run, "wmdc")
        (job,) = wmdc.model_jobs(other.settings, raw, {"WMDC": "WMDC"}, common.corpus(other)).values()
        steps.append(Step("train WMDC", ENGLISH, lambda _: job))
        places["WMDC"] = "train WMDC"
    if "TaDSE" in wanted:
        steps.append(_templates(elsewhere(run, "tadse")))
        places["TaDSE"] = steps[-1].name
    if "DialogueCSE" in wanted:
        steps += _matching(run, raw)
        places["DialogueCSE"] = steps[-1].name
    return steps, places


def _templates(other) -> Step:
    s, sets = other.settings, tadse_data.data(other)
    spec = tadse_models.specifications(s, tuple(sets))["TaDSE"]
    start = ("sentences", "SimCSE-unsup")
    return Step("train TaDSE", start, lambda simcse: tadse_models.job(s, spec, {"SimCSE": simcse}, sets))


def _matching(run, raw: Encoder) -> list[Step]:
    """Both stages of DialogueCSE on its English corpus, first seed."""
    s = elsewhere(run, "dialoguecse").settings
    corpus = dialoguecse.corpus(run, next(name for name in dialoguecse.needed(s) if name != "ECD"), s)
    seed, place = s.train_seeds[0], ("sentences", "adapted")
    first, second = (dialoguecse.model(recipe, s, corpus) for recipe in ("adaptation", MATCHING))
    adaptation = job_of(s, first, raw, seed)

    def match(adapted: Encoder):
        return job_of(s, second, adapted, seed)

    return [
        Step(f"adapt to {corpus.name}, seed {seed}", ENGLISH, lambda _: adaptation, place),
        Step(f"train {MATCHING}, {corpus.name}, seed {seed}", place, match),
    ]
