"""A server of a folder, or a canary: one that has nothing, and writes down whatever is asked of it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def served(folder: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """The address of a server of a folder, or of one that has nothing; and the paths that were asked of it."""
    asked: list[str] = []
    base = SimpleHTTPRequestHandler if folder else BaseHTTPRequestHandler

    class Handler(base):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

        def do_GET(self) -> None:
            if folder:
                super().do_GET()
            else:
                self.send_error(404)

    kind = functools.partial(Handler, directory=folder) if folder else Handler
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
