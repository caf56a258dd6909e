"""What a run would need, without running it: its parameters, and which data and encoders are on this machine."""

from typing import NamedTuple

from dialnb.data.datasets import find_reader, records_path
from dialnb.data.sources import get_source
from dialnb.data.store import default_store
from dialnb.errors import BadParameter
from dialnb.models.places import can_ask_hub, find_encoder
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

    Official files that nobody could check yet are needed where they are asked for, or where there is nothing else.
    """
    store = default_store()
    dataset, _, variant = name.partition(":")
    reader = find_reader(dataset)
    if reader.dataset.startswith("bundled/"):
        return Need("data", name, True, "bundled")
    if records_path(reader, variant, store).is_file():
        return Need("data", name, True, "parsed, in the cache")
    files = [(source, file) for source in map(get_source, reader.sources) for file in source.files]
    if "official" not in variant and any(file.verified for _, file in files):
        files = [(source, file) for source, file in files if file.verified]
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
