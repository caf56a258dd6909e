"""Mirrors that lie: what a server of files may answer instead of the file."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import random
import socketserver
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from dialnb.data.sources import Source, SourceFile
from dialnb.data.store import Store
from tools.audit.outcomes import REFUSED, SOUND, WRONG, Family, Tried, tried

BODY = random.Random(7).randbytes(60_000)
UPSTREAM = "https://host.example/data.bin"
SILENT = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + BODY[:20_000]
PAGE = b"<!doctype html><title>Sign in</title><p>Please sign in."


def answer(body: bytes = b"", *headers: str, status: str = "200 OK", length: object = None) -> bytes:
    """The bytes of an answer of a server; its length is that of the body unless another is given."""
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers)
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def leads_to(place: str, status: str = "302 Found") -> bytes:
    """An answer that sends the client elsewhere."""
    return answer(b"", f"Location: {place}", status=status)


PLACES = (
    *("http://[::1/x", "http://a:b:c/", "http://host:99999999/", "//[", "http://\xff.\x00/", "http://", "", "?#", "%"),
    *("file:///etc/passwd", "ftp://127.0.0.1/x", "javascript:1", "data:,x", "http://127.0.0.1:9/", "/" * 9_000),
)
ERRORS = (
    *("204 No Content", "300 Choose", "304 As before", "401 Who", "403 No", "404 Missing", "410 Gone", "416 Range"),
    *("418 \x1b[31mred\x07\x9b2J", "429 Later", "500 Broken", "503 Full", "599 " + "x" * 9_000, "999 None", "abc", ""),
)
LIES = {
    "as it is": answer(BODY),
    "one bit": answer(BODY[:-1] + bytes([BODY[-1] ^ 1])),
    "another file of the same length": answer(bytes(len(BODY))),
    "half of it": answer(BODY[:30_000]),
    "half of it, then nobody": answer(BODY[:30_000], length=len(BODY)),
    "half of it, then silence": SILENT,
    "one byte more": answer(BODY + b"x"),
    "a hundred times it": answer(BODY * 100),
    "no bytes": answer(),
    "not a word": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "bytes without a head": BODY,
    "a page with 200": answer(PAGE, "Content-Type: text/html"),
    "a page with 200 and the length of the file": answer(PAGE.ljust(len(BODY)), "Content-Type: text/html"),
    "gzip of another file": answer(gzip.compress(bytes(len(BODY)))),
    "gzip, cut": answer(gzip.compress(BODY)[:-100]),
    "gzip of 100 MB": answer(gzip.compress(bytes(10**8))),
    "says gzip and is not": answer(BODY, "Content-Encoding: gzip"),
    "says zstd and is not": answer(BODY, "Content-Encoding: zstd"),
    "a part that nobody asked for": answer(
        BODY[:30_000], "Content-Range: bytes 0-29999/60000", status="206 Partial Content"
    ),
    "a part of nothing": answer(BODY, "Content-Range: x", status="206 Partial Content"),
    "pieces of no length": answer(b"zz\r\n" + BODY, "Transfer-Encoding: chunked"),
    "a piece of 2 EB": answer(b"f" * 15 + b"\r\n" + BODY, "Transfer-Encoding: chunked"),
    "a thousand headers": answer(BODY, *("X: y" for _ in range(1_000))),
    "a header of 100,000 letters": answer(BODY, "X: " + "y" * 100_000),
    **{f"a length of {length}": answer(BODY, length=length) for length in ("abc", -1, "", 1, 60_001, 10**30, "\xb2")},
    "a circle": leads_to(f"/liar/{UPSTREAM.removeprefix('https://')}"),
    **{f"leads to {place[:30]!r}": leads_to(place) for place in PLACES},
    **{f"an error: {status[:30]!r}": answer(PAGE, status=status) for status in ERRORS},
}
"""Answers by what is wrong with them."""


class _Talk(socketserver.StreamRequestHandler):
    """One request to the liar, or to the sound mirror beside it."""

    def handle(self) -> None:
        server, request = self.server, self.rfile.readline(65_537)
        assert isinstance(server, _Liar)
        while self.rfile.readline(65_537) not in (b"\r\n", b"\n", b""):
            pass
        missing = answer(status="404 Missing")
        lie = server.lie if request.startswith(b"GET /liar/") else missing if b".gz " in request else answer(BODY)
        try:
            self.wfile.write(lie)
            if lie == SILENT:
                server.over.wait()
        except OSError:
            pass  # the client has heard enough


class _Liar(socketserver.ThreadingTCPServer):
    """A server whose mirror `/liar` answers whatever it is told to; its mirror `/sound` has the file."""

    daemon_threads = True
    lie = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Talk)
        self.over = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


def lying_mirrors(folder: Path) -> Iterator[Tried]:
    """Mirrors that lie, alone and with a sound one after them."""
    file = SourceFile("data.bin", (UPSTREAM,), hashlib.sha256(BODY).hexdigest(), len(BODY))
    toy = Source("Toy", "Toy", (), "CC0-1.0", True, "nobody", "", "complete", "All of it.", "", (file,))
    hurried = mock.patch.multiple("dialnb.data.download", READ=2.0, TRIES=2, PAUSE=0.01)
    with _Liar() as server, hurried, mock.patch.dict(os.environ, no_proxy="*"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        liar, sound = f"{server.address}/liar", f"{server.address}/sound"
        for number, (fault, server.lie) in enumerate(LIES.items()):
            for mirrors in (liar, os.pathsep.join((liar, sound))):
                store = Store(folder / f"{number}-{len(mirrors)}", mirrors, offline=False)
                yield _asked(fault if mirrors == liar else f"{fault}, then a sound one", store, toy, mirrors != liar)
        server.over.set()
        server.shutdown()


def _asked(fault: str, store: Store, toy: Source, has_sound: bool) -> Tried:
    """What becomes of one file: its own bytes, or a sentence and nothing kept; the bytes if a sound mirror has them."""
    with contextlib.redirect_stderr(io.StringIO()):  # bars of progress
        result = tried(
            fault,
            lambda: store.path(toy, "data.bin", upstream=False).read_bytes(),
            lambda read: SOUND if read == BODY else WRONG,
        )
    kept = [path.name for path in (store.cache / "files").rglob("*") if path.is_file()]
    if result.outcome == REFUSED and (kept or has_sound):
        return Tried(fault, WRONG, f"{result.detail} ({', '.join(kept) or 'a sound mirror has it'})")
    return result


FAMILIES: tuple[Family, ...] = (lying_mirrors,)
