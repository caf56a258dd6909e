"""What a run needs: its parameters, data and encoders, whether they are on this machine, their hashes and licences."""

import re
from typing import NamedTuple

from dialnb.data import default_store, find_reader, records_path
from dialnb.data.sources import get_source
from dialnb.errors import BadParameter
from dialnb.files import Values, sha256
from dialnb.models.places import can_ask_hub, encoder_source, fetch_encoder, find_encoder, hub_snapshot
from dialnb.runs.profiles import Profiles, Settings


class Need(NamedTuple):
    """A dataset or an encoder that a profile asks for, and whether it is on this machine."""

    kind: str
    name: str
    present: bool
    state: str


def describe(profiles: Profiles, profile: str, settings: Settings) -> str:
    """The parameters with their origin, then data and encoders, as text."""
    lines = [f"{profiles.slug}, profile {profile}: the plan (nothing is executed)", "", "  parameters"]
    lines += [f"    {line}" for line in repr(settings).splitlines()]
    lines += ["", "  data and encoders"]
    for need in needs(profiles, profile, settings):
        lines.append(f"    {'present' if need.present else 'MISSING':<8} {need.kind:<8} {need.name}: {need.state}")
    return "\n".join(lines)


def needs(profiles: Profiles, profile: str, settings: Settings) -> list[Need]:
    """Data and encoders of a profile, and the encoders that are set."""
    data, encoders = profiles.needed(profile, settings)
    return [*map(_data, data), *map(_encoder, encoders)]


def check_encoders(profiles: Profiles, settings: Settings) -> None:
    """Refuse encoders set by hand that are neither on this machine nor on the hub, before anything runs."""
    for name in profiles.encoders(settings, by_hand=True):
        if _encoder(name).present:
            continue
        from huggingface_hub import file_exists

        if not can_ask_hub():
            trouble = "not in the hub's cache, and the hub cannot be reached from here"
        elif not file_exists(name, "config.json"):
            trouble = "and no model of the hub that can be read"
        else:
            continue
        raise BadParameter(f"there is no encoder '{name}': not bundled, no folder with a config.json, {trouble}")


def _data(name: str) -> Need:
    """A dataset is present when its records, or all the files they are read from, are in the cache or a mirror.

    Files that nobody could check yet are needed by the variant that reads them, or where there is nothing else.
    """
    store = default_store()
    dataset, _, variant = name.partition(":")
    reader = find_reader(dataset)
    if reader.dataset.startswith("bundled/"):
        return Need("data", name, True, "bundled")
    if records_path(reader, variant, store).is_file():
        return Need("data", name, True, "parsed, in the cache")
    files = [(source, file) for source in map(get_source, reader.sources) for file in source.files]
    if any(file.verified for _, file in files):
        files = [(source, file) for source, file in files if file.needed_by(variant)]
    missing = [file for source, file in files if not store.has(source, file)]
    if not missing:
        return Need("data", name, True, "in the cache or a mirror")
    known = all(file.verified for file in missing)
    amount = f"{sum(file.size for file in missing) / 1e6:,.1f} MB" if known else "official files of unknown size"
    return Need("data", name, False, f"to be fetched: {amount} (dialnb data fetch {' '.join(reader.sources)})")


def _encoder(name: str) -> Need:
    place = find_encoder(name)
    if place.kind == "hub":
        return Need("encoder", name, False, f"to be fetched from the hub (dialnb data fetch {name})")
    return Need("encoder", place.name, True, place.kind if place.folder else f"in the {place.kind}")


def data_facts(name: str, variant: str | None = None) -> Values:
    """Fingerprint and licence of a dataset as this machine has it; nothing is fetched."""
    reader = find_reader(name)
    key = records_path(reader, variant, default_store()).stem.rpartition("-")[2]
    return {"name": name, "variant": reader.variant(variant), "fingerprint": key, "licence": reader.terms()}


def encoder_facts(name: str) -> Values:
    """Where an encoder's weights come from and their sha256, as far as they are on this machine."""
    place = find_encoder(name)
    if place.kind == "cache or mirror":
        place = fetch_encoder(name)
    folder = place.folder or hub_snapshot(place.name)
    if folder and place.kind in ("folder", "bundled"):
        card = folder / "README.md"
        stated = re.search(r"^license:(.*)", card.read_text("utf-8"), re.M) if card.is_file() else None
        licence = stated[1].strip() if stated else "not stated"
    else:
        licence = encoder_source(place.name).licence
    hashes = {file.name: sha256(file) for file in sorted(folder.glob("*.safetensors"))} if folder else {}
    return {"name": place.name, "bundled": place.kind == "bundled", "sha256": hashes, "licence": licence}
