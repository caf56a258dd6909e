"""Files that can be trusted: from the cache, else a mirror, else upstream, and checked every time they are handed out.

Layout of the cache (`DIALNB_CACHE`, by default the user's cache folder):

    files/SOURCE/KEY        the uncompressed file, readable by any tool; it appears whole and checked, or not at all
    partial/                downloads under way; an interrupted one is continued next time
    quarantine/             files that failed their check, kept for inspection
    locks/                  one lock per file, so that processes do not fetch the same file twice
    tokens/                 texts as token ids, so that every model that reads them tokenises them once between them
    recorded.json           sha256 of files that the registry has no hash for, taken at first sight and enforced since

sha256 runs at more than a gigabyte per second, so a file is hashed again whenever a store hands it out for the first
time: a copy that rotted or was edited is set aside and fetched anew, never read.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import platformdirs
from filelock import FileLock
from tqdm import tqdm

from dialnb.data.archives import LARGE, members_digest, read_members
from dialnb.data.download import DownloadError, Patience, Unreachable, download
from dialnb.data.sources import Source, SourceFile, get_source
from dialnb.errors import DataError, Offline

CHUNK = 2**20
WORKERS = 8
GZIPPED = (".gz", ".tgz")
WEB = ("http://", "https://")


class _Bad(Exception):
    """Bytes that are not the file; the message is a clause that says how they differ."""


class Store:
    """Verified local copies of the registry's files.

    `mirror` is a folder or an http(s) address laid out as HOST/PATH, where files may be gzipped (".gz" appended), or
    several, joined as in PATH and asked in this order, folders first; `offline` forbids every use of the network.
    Unset, they follow DIALNB_CACHE, DIALNB_MIRROR and DIALNB_OFFLINE.

    >>> Store().path("CLINC150", "data/data_full.json")        # doctest: +SKIP
    PosixPath('/home/me/.cache/dialnb/files/CLINC150/data/data_full.json')
    """

    def __init__(
        self,
        cache: str | Path | None = None,
        mirror: str | Path | None = None,
        offline: bool | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.cache = Path(cache or os.environ.get("DIALNB_CACHE") or platformdirs.user_cache_dir("dialnb")).expanduser()
        self.mirror = str(mirror or os.environ.get("DIALNB_MIRROR") or "")
        self.offline = os.environ.get("DIALNB_OFFLINE", "") not in ("", "0") if offline is None else offline
        self.patience = patience or Patience()
        self._trusted: dict[Path, tuple[int, int]] = {}
        roots = split_roots(self.mirror)
        self._web_mirrors = [root.rstrip("/") for root in roots if root.startswith(WEB)]
        self._mirror_folders = [Path(root).expanduser() for root in roots if not root.startswith(WEB)]
        for folder in self._mirror_folders:
            if not folder.is_dir():
                raise DataError(
                    f"the mirror {str(folder)!r} is neither a folder nor an http(s) address; check DIALNB_MIRROR"
                )

    @property
    def tokens(self) -> Path:
        """Where tokenised texts are kept for all models that read the same ones."""
        return self.cache / "tokens"

    def path(self, source: str | Source, key: str, upstream: bool = True) -> Path:
        """Local path of one verified, uncompressed file, fetched if need be; without `upstream` from a mirror only."""
        entry = source if isinstance(source, Source) else get_source(source)
        file = entry.file(key)
        target = self.location(entry, file)
        try:
            if self._intact(entry, file, target):
                return target
            for folder in (target.parent, self.cache / "partial", self.cache / "locks"):
                folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.cache / "locks" / f"{_tag(entry.name, key)}.lock"):
                if not self._intact(entry, file, target):
                    if target.exists():
                        self._set_aside(entry, file, target)
                    self._fetch(entry, file, target, upstream)
        except OSError as error:
            raise DataError(
                f"{entry.name} {key} cannot be stored in {self.cache}: {error.strerror or error}. Nothing was left "
                "behind; make room there, or set DIALNB_CACHE to another folder"
            ) from error
        return target

    def paths(self, source: str, pattern: str = "*") -> dict[str, Path]:
        """Local paths of all verified files whose key matches `pattern` ("*" also crosses "/"), by sorted key.

        Files that nobody could check yet are left out unless the pattern names one exactly.
        """
        entry = get_source(source)
        keys = sorted(f.key for f in entry.files if f.key == pattern or (f.verified and fnmatchcase(f.key, pattern)))
        if not keys:
            raise DataError(f"{entry.name} has no file that matches {pattern!r}. {entry.coverage}")
        return self.fetch(entry.name, keys)

    def fetch(self, source: str | Source, keys: Sequence[str], upstream: bool = True) -> dict[str, Path]:
        """Local paths of the named files, fetched side by side; the first that cannot be had ends it."""
        name = source.name if isinstance(source, Source) else source
        with ThreadPoolExecutor(WORKERS) as pool:
            found = [pool.submit(self.path, source, key, upstream) for key in keys]
            try:
                bar = tqdm(zip(keys, found, strict=True), name, len(keys), leave=False, delay=2, unit="file")
                return {key: future.result() for key, future in bar}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def members(self, source: str, key: str, pattern: str = "*") -> dict[str, bytes]:
        """Members of a verified zip or tar archive that match `pattern`, by sorted name.

        Archives known by their members (`SourceFile.members_sha256`) have the top folder dropped from the names.
        """
        file = get_source(source).file(key)
        return read_members(self.path(source, key), pattern, strip_top=bool(file.members_sha256))

    def location(self, source: Source, file: SourceFile) -> Path:
        """Where the file lies in the cache, or would."""
        return self.cache / "files" / source.name / file.key

    def digest(self, source: Source, file: SourceFile) -> str:
        """What a file's bytes are known by: the registry's hash, else the recorded one; "" if it was never seen."""
        if file.verified:
            return file.members_sha256 or file.sha256
        return self._recorded(source, file) or ("mirrored" if any(self._mirror_copies(file)) else "")

    def has(self, source: Source, file: SourceFile) -> bool:
        """Whether a copy is in the cache or in a mirror folder; it is looked for, not verified."""
        return self.location(source, file).is_file() or any(self._mirror_copies(file))

    def check(self, source: str, key: str) -> tuple[str, str]:
        """("ok" | "missing" | "bad", a sentence) for the copies in the cache and in mirror folders; changes nothing.

        A mirror on the web has no copies to look at: where there are no others, the file is fetched.
        """
        entry = get_source(source)
        file = entry.file(key)
        target = self.location(entry, file)
        copies = [path for path in (target, *self._mirror_copies(file)) if path.exists()]
        if not copies and self._web_mirrors and not self.offline:
            try:
                return "ok", str(self.path(source, key))
            except DataError as error:
                return "bad", str(error)
        for copy in copies:
            try:
                self._verify(entry, file, copy, None)
            except (_Bad, OSError) as error:
                return "bad", f"{copy}: {error}"
        return ("ok", str(copies[0])) if copies else ("missing", f"{target} is not there")

    # -- fetching ---

    def _fetch(self, source: Source, file: SourceFile, target: Path, upstream: bool = True) -> None:
        """Bring the file to `target` from the first origin that has it; the caller holds the lock."""
        bad, failed, unreachable = [], [], set()
        for copy in self._mirror_copies(file):
            try:
                return self._admit(source, file, copy, target)
            except _Bad as error:
                bad.append(f"{copy} {error}")
        for url in () if self.offline else (*self._mirror_urls(file), *(file.urls if upstream else ())):
            host = urlsplit(url).netloc
            if host in unreachable:
                continue
            part = self.cache / "partial" / _tag(source.name, url)
            try:
                return self._admit_download(source, file, url, part, target)
            except _Bad as error:
                kept = self._set_aside(source, file, part)
                bad.append(f"{url} {error} (kept for inspection: {kept})")
            except Unreachable as error:
                unreachable.add(host)
                failed.append(str(error))
            except DownloadError as error:
                failed.append(f"{url}: {error}")
            except OSError:
                part.unlink(missing_ok=True)
                raise
        raise self._failure(source, file, target, bad, failed, only_unreachable=len(failed) == len(unreachable))

    def _failure(
        self, source: Source, file: SourceFile, target: Path, bad: list[str], failed: list[str], only_unreachable: bool
    ) -> DataError:
        name = f"{source.name} {file.key}"
        if bad:
            tried = "; ".join(bad + failed)
            return DataError(
                f"no intact copy of {name} was found: {tried}. Repair the mirror, or put the file at {target}"
            )
        put = f"put the file at {target}, or set DIALNB_MIRROR to a mirror that has it"
        if not file.urls:
            return Offline(f"{name} has to be fetched by hand: {file.note or source.coverage} Then {put}")
        if self.offline:
            return Offline(f"{name} is not here, and DIALNB_OFFLINE forbids the network: unset it, {put}")
        tried = "; ".join(failed)
        if only_unreachable:
            return Offline(f"{name} could not be downloaded: {tried}. Check the network, {put}")
        return DataError(f"{name} could not be downloaded: {tried}. Try again later, {put}")

    def _admit_download(self, source: Source, file: SourceFile, url: str, part: Path, target: Path) -> None:
        limit = file.size + CHUNK if file.sha256 and not file.members_sha256 else LARGE
        resumed = download(url, part, resume=file.verified, limit=limit, patience=self.patience)
        try:
            self._admit(source, file, part, target)
        except _Bad:
            if not resumed:
                raise
            download(url, part, resume=False, limit=limit, patience=self.patience)  # the two halves did not fit
            self._admit(source, file, part, target)
        part.unlink()

    def _admit(self, source: Source, file: SourceFile, raw: Path, target: Path) -> None:
        """Unpack `raw` beside `target`, verify it on the way, and let it appear in one step."""
        with NamedTemporaryFile(dir=self.cache / "partial", prefix="new-", delete=False) as temporary:
            new = Path(temporary.name)
            try:
                sha256 = self._verify(source, file, raw, temporary)
                temporary.close()
                new.chmod(0o644)
                new.replace(target)
            finally:
                new.unlink(missing_ok=True)
        self._trust(source, file, target, sha256)

    def _mirror_copies(self, file: SourceFile) -> Iterator[Path]:
        """Files of the mirror folders that hold this file, plain or gzipped."""
        for folder, url in product(self._mirror_folders, file.urls):
            where = urlsplit(url)
            plain = folder / where.netloc / unquote(where.path).lstrip("/")
            yield from (path for path in (plain, plain.with_name(plain.name + ".gz")) if path.is_file())

    def _mirror_urls(self, file: SourceFile) -> Iterator[str]:
        """Addresses on web mirrors; big files are usually gzipped there, small ones not."""
        for root, url in product(self._web_mirrors, file.urls):
            where = urlsplit(url)
            plain = f"{root}/{where.netloc}{where.path}"
            yield from (f"{plain}.gz", plain) if file.size > 50_000 else (plain, f"{plain}.gz")

    # -- trust ---

    def _intact(self, source: Source, file: SourceFile, target: Path) -> bool:
        """Whether the cached copy is there and right; hashed once per store and whenever it has changed since."""
        try:
            status = target.stat()
            if self._trusted.get(target) != (status.st_size, status.st_mtime_ns):
                self._trust(source, file, target, self._verify(source, file, target, None))
            return True
        except (FileNotFoundError, _Bad):
            return False

    def _trust(self, source: Source, file: SourceFile, target: Path, sha256: str) -> None:
        """Hand out `target` without hashing it again, and record its hash where the registry has another or none."""
        status = target.stat()
        self._trusted[target] = (status.st_size, status.st_mtime_ns)
        if sha256 != file.sha256 and sha256 != self._recorded(source, file):
            self._record(source, file, sha256)

    def _verify(self, source: Source, file: SourceFile, raw: Path, sink: BinaryIO | None) -> str:
        """sha256 of the uncompressed bytes of `raw`, once they are known to be right; copies them into `sink`."""
        limit = file.size if file.sha256 and not file.members_sha256 else LARGE
        digest, size = hashlib.sha256(), 0
        with _uncompressed(raw, file.key) as stream:
            try:
                while chunk := stream.read(CHUNK):
                    if (
                        not size
                        and not file.verified
                        and chunk.lstrip()[:9].lower().startswith((b"<!doctype", b"<html"))
                    ):
                        raise _Bad("is a web page, not the file")
                    digest.update(chunk)
                    size += len(chunk)
                    if size > limit:
                        raise _Bad(f"holds more than the {limit:,} bytes expected")
                    if sink:
                        sink.write(chunk)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise _Bad(f"is a damaged gzip file ({error})") from None
        found = digest.hexdigest()
        known = file.sha256 if file.sha256 and not file.members_sha256 else self._recorded(source, file)
        if found in (file.sha256, known):
            return found
        if file.members_sha256:
            self._verify_members(file, raw)
        elif known:
            wrong = f"{size:,} bytes instead of {file.size:,}" if file.size not in (0, size) else ""
            raise _Bad(f"has {wrong or f'sha256 {found[:16]}… instead of {known[:16]}…'}")
        return found

    def _verify_members(self, file: SourceFile, raw: Path) -> None:
        try:
            found = members_digest(raw, file.members)
        except DataError as error:
            raise _Bad(f"cannot be checked by its members ({error})") from None
        if found != file.members_sha256:
            raise _Bad(f"has members with sha256 {found[:16]}… instead of {file.members_sha256[:16]}…")

    def _recorded(self, source: Source, file: SourceFile) -> str:
        """The hash that was seen first, or ""."""
        return self._records().get(f"{source.name}/{file.key}", {}).get("sha256", "")

    def _records(self) -> dict[str, dict[str, str]]:
        try:
            return json.loads((self.cache / "recorded.json").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise DataError(f"{self.cache / 'recorded.json'} is damaged ({error}); repair or delete it") from None

    def _record(self, source: Source, file: SourceFile, sha256: str) -> None:
        (self.cache / "locks").mkdir(parents=True, exist_ok=True)
        with FileLock(self.cache / "locks" / "recorded.lock"):
            entry = {"sha256": sha256, "first seen": date.today().isoformat()}
            text = json.dumps(self._records() | {f"{source.name}/{file.key}": entry}, indent=1, sort_keys=True)
            new = self.cache / "recorded.json.new"
            new.write_text(text + "\n", "utf-8")
            new.replace(self.cache / "recorded.json")

    def _set_aside(self, source: Source, file: SourceFile, bad: Path) -> Path:
        """Move a bad file to the quarantine."""
        kept = self.cache / "quarantine" / source.name / file.key
        kept.parent.mkdir(parents=True, exist_ok=True)
        bad.replace(kept)
        warnings.warn(f"{source.name} {file.key} failed its check; the bad copy is now {kept}", stacklevel=4)
        return kept


def default_store() -> Store:
    """The store that the environment describes."""
    return Store()


def split_roots(setting: str) -> list[str]:
    """The roots that DIALNB_MIRROR names, joined as in PATH; the colons of addresses do not part them.

    >>> split_roots(os.pathsep.join(["/data/mirror", "http://localhost:8000/m", "more"]))
    ['/data/mirror', 'http://localhost:8000/m', 'more']
    """
    address = r"https?://(?:[^/@]+@)?(?:\[[^\]]*\]|[^/:;]+)(?::\d+)?"
    return re.findall(rf"{address}[^{os.pathsep}]*|[^{os.pathsep}]+", setting)


def _tag(source: str, name: str) -> str:
    """A short file name for a lock or a partial download."""
    return f"{source.replace('/', '--')}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


@contextmanager
def _uncompressed(raw: Path, key: str) -> Iterator[BinaryIO]:
    """The bytes of `raw`, gunzipped unless the file itself is a gzip file upstream."""
    with raw.open("rb") as file:
        packed = not key.endswith(GZIPPED) and file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if packed else file
