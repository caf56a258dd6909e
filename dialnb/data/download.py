"""One HTTP download that survives cuts, stalls and restarts, or says in a sentence why it cannot."""

import time
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3
from tqdm import tqdm

CHUNK = 2**18
BIG = 5 * 2**20  # from this size on, a progress bar is shown
CONNECT, READ = 6.0, 30.0  # seconds until a silent server is given up
TRIES = 5  # without progress
PAUSE = 0.5  # seconds between the first tries, then doubling
NO_CONNECTION = (
    urllib3.exceptions.NewConnectionError,  # refused, no route; its child is the failed look-up of a name
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)


class DownloadError(Exception):
    """A download that failed for good; the message is a clause such as "the server answers 404"."""


class Unreachable(DownloadError):
    """No connection to the host: no network, no such name, nobody listening."""

    def __init__(self, host: str) -> None:
        super().__init__(f"no connection to {host.rpartition('@')[2]}")
        self.host = host


class _Interrupted(Exception):
    """A try that may succeed when repeated."""


def download(url: str, part: Path, *, resume: bool, limit: int) -> bool:
    """Leave the body of `url`, as the server sends it, in `part`; returns whether earlier bytes in `part` were kept.

    A try that is cut off is continued with a Range request where `resume` allows it and the server can, else begun
    again. Tries are counted from the last progress, so that a long file over a poor line arrives in the end. A host
    that cannot be reached is asked just twice.
    """
    if not resume:
        part.unlink(missing_ok=True)
    best, failures = _size(part), 0
    while True:
        try:
            return _transfer(url, part, limit)
        except _Interrupted as error:
            failures = 1 if _size(part) > best else failures + 1
            best = max(best, _size(part))
            if failures >= TRIES:
                raise DownloadError(f"{error}, {failures} times in a row") from None
        except Unreachable:
            failures += 1
            if failures > 1:
                raise
        if not resume:
            part.unlink(missing_ok=True)
        time.sleep(PAUSE * 2 ** (failures - 1))


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _transfer(url: str, part: Path, limit: int) -> bool:
    """One request; returns whether the server continued where `part` ended."""
    start = _size(part)
    headers = {"Accept-Encoding": "identity", "User-Agent": "dialnb"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(CONNECT, READ)) as response:
            status, span = response.status_code, response.headers.get("Content-Range", "")
            if status in (408, 429) or status >= 500:
                raise _Interrupted(f"the server answers {status}")
            if status == 416 or (status == 206 and not span.startswith(f"bytes {start}-")):
                part.unlink(missing_ok=True)  # the server knows other bytes than those that are here
                raise _Interrupted("the server does not continue the partial file")
            if status not in (200, 206):
                raise DownloadError(f"the server answers {status} ({response.reason})")
            _save(response, part, start if status == 206 else 0, limit)
            return status == 206
    except requests.exceptions.SSLError as error:
        raise DownloadError(f"the secure connection failed ({error})") from None
    except (requests.ReadTimeout, urllib3.exceptions.TimeoutError):
        raise _Interrupted(f"the server is silent for {READ:g} s") from None
    except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:  # also where connecting takes too long
        reason = getattr(error.args[0], "reason", error.args[0]) if error.args else error
        if isinstance(reason, NO_CONNECTION):
            asked = getattr(error, "request", None)  # a server may have sent it to another
            raise Unreachable(urlsplit(asked.url if asked else url).netloc) from None
        raise _Interrupted("the connection breaks off") from None
    except (requests.RequestException, ValueError) as error:  # a server may send it to an address that is none
        raise DownloadError(f"the request failed ({error})") from None


def _save(response: requests.Response, part: Path, start: int, limit: int) -> None:
    stated = response.headers.get("Content-Length", "")
    length = int(stated) if stated.isdecimal() else 0
    bar = tqdm(total=start + length, initial=start, unit="B", unit_scale=True, leave=False, disable=length < BIG)
    bar.set_description(Path(urlsplit(response.url).path).name, refresh=False)
    with bar, part.open("ab" if start else "wb") as file:
        for chunk in response.raw.stream(CHUNK, decode_content=False):
            file.write(chunk)
            bar.update(len(chunk))
            if file.tell() > limit:
                part.unlink()
                raise DownloadError(f"the server sends more than the {limit:,} bytes expected")
