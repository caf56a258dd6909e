"""Models of the other notebooks as they train them in the same profile: equal specifications, hence their stages."""

from __future__ import annotations

from dialnb.examples.readings import Dialogues
from dialnb.runs.grid import Model
from dialnb.studies import dse, wmdc


def models(run) -> dict[str, Model]:
    """The sentence encoders that the profile of a notebook asks for, by name, with what they start from."""
    wanted, found = run.settings["sentence_encoders"], {}
    dse_settings, wmdc_settings = run.elsewhere("dse"), run.elsewhere("wmdc")
    corpus = run.corpus(dse_settings)
    dialogues = Dialogues(corpus, dse_settings["dialogues"], dse_settings["tail_quirk"])
    for name in ("SimCSE-unsup", "TOD-BERT", "DSE"):
        if name in wanted:
            found[name] = dse.model(name, dse_settings, dialogues)
    if "WMDC" in wanted:
        found["WMDC"] = wmdc.model("WMDC", wmdc_settings, Dialogues(corpus, wmdc_settings["dialogues"]))
    return found
