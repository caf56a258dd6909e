"""Models of the other notebooks as they train them in the same profile: equal specifications, hence their stages."""

from __future__ import annotations

from dialnb.examples.readings import Dialogues
from dialnb.runs.grid import Model
from dialnb.studies import dialoguecse, dse, tadse, wmdc


def models(run) -> dict[str, Model]:
    """The sentence encoders that the profile of a notebook asks for, by name, with what they start from.

    TaDSE starts from the SimCSE of DSE's notebook, DialogueCSE from an encoder that was adapted to its corpus.
    """
    wanted, found = run.settings["sentence_encoders"], {}
    s = run.elsewhere("dse")
    corpus = run.corpus(s)
    dialogues = Dialogues(corpus, s["dialogues"], s["tail_quirk"])
    for name in ("SimCSE-unsup", "TOD-BERT", "DSE"):
        if name in wanted or (name == "SimCSE-unsup" and "TaDSE" in wanted):
            found[name] = dse.model(name, s, dialogues)
    if "WMDC" in wanted:
        s = run.elsewhere("wmdc")
        found["WMDC"] = wmdc.model("WMDC", s, Dialogues(corpus, s["dialogues"]))
    if "TaDSE" in wanted:
        s = run.elsewhere("tadse")
        sets = {name: part for name, part in run.data("intents", "tadse").items() if name in s["datasets"]}
        found["TaDSE"] = tadse.model("TaDSE", s, tadse.filled(sets, s), start="SimCSE-unsup")
    if "DialogueCSE" in wanted:
        s = run.elsewhere("dialoguecse")
        english = dialoguecse.corpus(run, next(name for name in dialoguecse.needed(s) if name != "ECD"), s)
        found["adapted"] = dialoguecse.model("adaptation", s, english, start="")
        found["DialogueCSE"] = dialoguecse.model("DialogueCSE I2", s, english, start="adapted", labels={})
    return found
