"""The store against a server that cuts, corrupts, stalls, redirects and lies, and against a full disk."""

from __future__ import annotations

import errno
import gzip
import hashlib
import random
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dialnb.data import download, sources
from dialnb.data import store as store_module
from dialnb.data.sources import Source, SourceFile
from dialnb.data.store import Store
from dialnb.errors import DataError, Offline

BODY = random.Random(7).randbytes(200_000)


class Handler(BaseHTTPRequestHandler):
    """Answers each path with the behaviours queued for it, one per request; the last one stays."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Faulty = self.server.faulty
        with server.guard:
            server.requests.append((self.path, self.headers.get("Range")))
            queue = server.plans.get(self.path, [missing])
            act = queue.pop(0) if len(queue) > 1 else queue[0]
        act(self)

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def start(self) -> int:
        """First byte that the client asks for."""
        return int((self.headers.get("Range") or "bytes=0-")[6:-1])


Act = Callable[[Handler], None]


def missing(handler: Handler) -> None:
    handler.reply(b"not here", 404)


def serve(body: bytes, **headers: str) -> Act:
    """An honest server that can continue a partial download."""

    def act(handler: Handler) -> None:
        start = handler.start()
        if start:
            span = f"bytes {start}-{len(body) - 1}/{len(body)}"
            handler.reply(body[start:], 206, Content_Range=span, **headers)
        else:
            handler.reply(body, **headers)

    return act


def ignore_range(body: bytes) -> Act:
    return lambda handler: handler.reply(body)


def cut(body: bytes, after: int) -> Act:
    """Promise the whole body, send a part of it and hang up."""

    def act(handler: Handler) -> None:
        handler.reply(body[:after], length=len(body))
        handler.close_connection = True

    return act


def stall(body: bytes, after: int) -> Act:
    """Promise the whole body, send a part of it and fall silent."""

    def act(handler: Handler) -> None:
        handler.reply(body[:after], length=len(body))
        handler.wfile.flush()
        handler.server.faulty.over.wait()
        handler.close_connection = True

    return act


def status(code: int) -> Act:
    return lambda handler: handler.reply(b"", code)


def redirect(to: str) -> Act:
    return lambda handler: handler.reply(b"", 302, Location=to)


@dataclass
class Faulty:
    """A local server; `plans` maps a path to its behaviours, `requests` lists (path, Range) as they came."""

    plans: dict[str, list[Act]] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def url(self, path: str) -> str:
        return self.address + path


@pytest.fixture
def server():
    faulty = Faulty()
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.faulty = faulty
    faulty.address = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield faulty
    faulty.over.set()
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    """A proxy of this machine must not stand between the store and the local server."""
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    """Few tries, but time for a busy machine."""
    for name, value in {"CONNECT": 30.0, "READ": 60.0, "TRIES": 3, "PAUSE": 0.01}.items():
        monkeypatch.setattr(download, name, value)


@pytest.fixture
def _impatient(_hurried, monkeypatch):
    """For servers that fall silent."""
    monkeypatch.setattr(download, "READ", 1.5)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache", offline=False)


@pytest.fixture
def register(monkeypatch):
    """Replace the registry by one source, Toy, with one file: BODY, or an unchecked file, at these addresses."""

    def replace_registry(*urls: str, checked: bool = True) -> None:
        facts = {"sha256": hashlib.sha256(BODY).hexdigest(), "size": len(BODY)} if checked else {}
        files = (SourceFile("data.bin", urls, licence="CC0-1.0", **facts),)
        toy = Source("Toy", "Toy", (), "CC0-1.0", True, "nobody", "", "complete", "All of it.", "", files)
        monkeypatch.setattr(sources, "load_registry", lambda: {"Toy": toy})

    return replace_registry


def left_in(store: Store, *places: str) -> list[str]:
    """Names of the files in the cache, without locks."""
    places = places or ("files", "partial", "quarantine")
    return sorted(path.name for place in places for path in (store.cache / place).rglob("*") if path.is_file())


def test_a_download_that_is_cut_off_is_continued_where_it_ended(server, register, store):
    server.plans["/data"] = [cut(BODY, 70_000), serve(BODY)]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    (_, first), (_, second) = server.requests
    assert first is None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= 70_000
    assert left_in(store) == ["data.bin"]


def test_a_download_of_an_earlier_session_is_continued(server, register, store):
    server.plans["/data"] = [cut(BODY, 70_000), status(503)]
    register(server.url("/data"))
    with pytest.raises(DataError, match="answers 503"):
        store.path("Toy", "data.bin")
    assert left_in(store, "files") == []
    server.plans["/data"], server.requests = [serve(BODY)], []
    assert Store(store.cache).path("Toy", "data.bin").read_bytes() == BODY
    assert server.requests[0][1] is not None


def test_a_server_that_cannot_continue_is_asked_for_the_whole_file(server, register, store):
    server.plans["/data"] = [cut(BODY, 70_000), ignore_range(BODY)]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY


def test_a_server_that_always_hangs_up_is_given_up_after_a_few_tries(server, register, store):
    server.plans["/data"] = [cut(BODY, 70_000)]
    register(server.url("/data"))
    with pytest.raises(DataError, match="the connection breaks off"):
        store.path("Toy", "data.bin")
    assert len(server.requests) <= download.TRIES + 1
    assert left_in(store, "files", "quarantine") == []


def test_a_poor_line_that_makes_progress_gets_there(server, register, store):
    def drip(handler: Handler) -> None:
        start = handler.start()
        piece = BODY[start : start + 25_000]
        span = {"Content_Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"} if start else {}
        handler.reply(piece, 206 if start else 200, length=len(BODY) - start, **span)
        handler.close_connection = True

    server.plans["/data"] = [drip]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert len(server.requests) > download.TRIES


def test_halves_that_do_not_fit_together_are_fetched_again_from_the_start(server, register, store):
    other = bytes(len(BODY))
    server.plans["/data"] = [cut(other, 70_000), serve(BODY)]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert server.requests[-1][1] is None


@pytest.mark.parametrize("answer", ["wrong place", "impossible range"])
def test_a_server_that_continues_wrongly_is_asked_from_the_start(server, register, store, answer):
    span = f"bytes 0-{len(BODY) - 1}/{len(BODY)}"
    wrong = {
        "wrong place": lambda handler: handler.reply(BODY, 206, Content_Range=span),
        "impossible range": status(416),
    }
    server.plans["/data"] = [cut(BODY, 70_000), wrong[answer], serve(BODY)]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert server.requests[-1][1] is None


def test_a_corrupt_file_is_refused_and_kept_aside_for_inspection(server, register, store):
    corrupt = BODY[:-1] + bytes([BODY[-1] ^ 1])
    server.plans["/data"] = [serve(corrupt)]
    register(server.url("/data"))
    kept = store.cache / "quarantine" / "Toy" / "data.bin"
    with pytest.warns(UserWarning), pytest.raises(DataError, match="has sha256") as caught:
        store.path("Toy", "data.bin")
    assert str(kept) in str(caught.value)
    assert kept.read_bytes() == corrupt
    assert left_in(store, "files", "partial") == []


def test_where_the_official_file_changed_the_pinned_copy_is_taken(server, register, store):
    server.plans |= {"/official": [serve(b"a new release")], "/pinned": [serve(BODY)]}
    register(server.url("/official"), server.url("/pinned"))
    with pytest.warns(UserWarning, match="failed its check"):
        assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert [path for path, _ in server.requests] == ["/official", "/pinned"]


def test_a_server_that_sends_without_end_is_stopped(server, register, store):
    server.plans["/data"] = [serve(BODY * 10)]
    register(server.url("/data"))
    with pytest.raises(DataError, match="sends more than"):
        store.path("Toy", "data.bin")
    assert left_in(store) == []


@pytest.mark.usefixtures("_impatient")
def test_a_stall_is_cut_short_and_the_download_continued(server, register, store):
    server.plans["/data"] = [stall(BODY, 70_000), serve(BODY)]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_never_says_a_word_is_given_up(server, register, store):
    server.plans["/data"] = [lambda handler: handler.server.faulty.over.wait()]
    register(server.url("/data"))
    with pytest.raises(DataError, match=r"silent for 1\.5 s"):
        store.path("Toy", "data.bin")
    assert len(server.requests) == download.TRIES


def test_redirects_are_followed_but_not_in_circles(server, register, store):
    server.plans |= {"/data": [redirect("/moved")], "/moved": [serve(BODY)], "/loop": [redirect("/loop")]}
    register(server.url("/loop"), server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY


def test_an_address_in_capitals_is_one(server, register, tmp_path):
    register("https://host.example/data.bin")
    server.plans["/m/host.example/data.bin"] = [serve(BODY)]
    store = Store(tmp_path / "cache", server.url("/m").replace("http", "HTTP"), offline=False)
    assert store.path("Toy", "data.bin", upstream=False).read_bytes() == BODY


def odd_length(handler: Handler) -> None:
    """The whole body, but a length that is no number."""
    handler.send_response(200)
    handler.send_header("Content-Length", "abc")
    handler.end_headers()
    handler.wfile.write(BODY)
    handler.close_connection = True


def odd_reason(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 418 \x1b[31mred\x07\x9b2J\r\nContent-Length: 0\r\n\r\n")


def test_a_length_that_is_no_number_is_passed_over(server, register, store):
    register(server.url("/data.bin"))
    server.plans["/data.bin"] = [odd_length]
    assert store.path("Toy", "data.bin").read_bytes() == BODY


@pytest.mark.parametrize(
    "place", ["http://[::1/x", "http://a:b:c/", "http://host:99999999/", "//[", "http://\xff.\x00/"]
)
def test_a_server_that_leads_to_no_address_is_a_sentence(server, register, store, place):
    register(server.url("/data.bin"))
    server.plans["/data.bin"] = [redirect(place)]
    with pytest.raises(DataError, match="could not be downloaded"):
        store.path("Toy", "data.bin")


def test_a_server_that_leads_to_a_host_out_of_reach_is_itself_in_reach(server, register, store):
    register(server.url("/moved"), server.url("/data"), server.url("/moved"))
    server.plans |= {"/moved": [redirect("http://127.0.0.1:9/data")], "/data": [missing]}
    with pytest.raises(DataError, match=r"no connection to 127\.0\.0\.1:9; http.*answers 404") as caught:
        store.path("Toy", "data.bin")
    assert str(caught.value).count("no connection") == 1
    server.plans["/data"] = [serve(BODY)]
    assert store.path("Toy", "data.bin").read_bytes() == BODY


def test_what_a_server_says_is_shown_and_not_obeyed(server, register, store):
    register(server.url("/data.bin"))
    server.plans["/data.bin"] = [odd_reason]
    with pytest.raises(DataError, match=r"the server answers 418 \(.*red") as caught:
        store.path("Toy", "data.bin")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "act", [missing, status(500), redirect("http://[::1/x"), lambda handler: handler.reply(b"other bytes"), None]
)
@pytest.mark.filterwarnings("ignore:.*failed its check")
def test_a_password_in_the_address_of_a_mirror_is_never_printed(server, register, tmp_path, capsys, monkeypatch, act):
    register("https://host.example/data.bin")
    address = server.url("/m").replace("//", "//me:s3cret%40@")
    if act is None:
        monkeypatch.setattr(download, "CONNECT", 0.5)
        address = "http://me:s3cret%40@127.0.0.1:9/m"
    server.plans["/m/host.example/data.bin"] = server.plans["/m/host.example/data.bin.gz"] = [act]
    store = Store(tmp_path / "cache", address, offline=False)
    with pytest.raises(DataError) as caught:
        store.path("Toy", "data.bin", upstream=False)
    shown = "".join(traceback.format_exception(caught.value)) + str(store.check("Toy", "data.bin"))
    assert "127.0.0.1" in shown and "s3cret" not in shown and "s3cret" not in "".join(capsys.readouterr())


def test_a_missing_file_is_not_asked_for_twice(server, register, store):
    register(server.url("/data"))
    with pytest.raises(DataError, match="answers 404"):
        store.path("Toy", "data.bin")
    assert len(server.requests) == 1


def test_an_overloaded_server_is_asked_again(server, register, store):
    server.plans["/data"] = [status(500), status(429), serve(BODY)]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY


def test_a_host_that_cannot_be_reached_is_offline_after_two_tries(register, store, monkeypatch):
    pauses = []
    monkeypatch.setattr("dialnb.data.download.time.sleep", pauses.append)
    register("http://127.0.0.1:9/data", "http://127.0.0.1:9/other", "http://no-such-host.invalid/data")
    with pytest.raises(
        Offline, match=r"no connection to 127\.0\.0\.1:9; no connection to no-such-host\.invalid"
    ) as caught:
        store.path("Toy", "data.bin")
    assert "Check the network" in str(caught.value)
    assert len(pauses) == 2


def test_offline_never_touches_the_network(server, register, tmp_path):
    server.plans["/data"] = [serve(BODY)]
    register(server.url("/data"))
    store = Store(tmp_path / "cache", mirror=server.url("/mirror"), offline=True)
    with pytest.raises(Offline, match="DIALNB_OFFLINE"):
        store.path("Toy", "data.bin")
    assert store.check("Toy", "data.bin")[0] == "missing"
    assert server.requests == []


def test_a_web_mirror_is_asked_before_upstream_and_may_hold_gzipped_files(server, register, tmp_path):
    server.plans |= {"/mirror/example.org/data.bin.gz": [serve(gzip.compress(BODY))]}
    register("https://example.org/data.bin")
    store = Store(tmp_path / "cache", mirror=server.url("/mirror/"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert store.check("Toy", "data.bin")[0] == "ok"


def test_upstream_is_asked_where_the_web_mirror_has_nothing(server, register, tmp_path):
    server.plans["/data"] = [serve(BODY)]
    register(server.url("/data"))
    store = Store(tmp_path / "cache", mirror=server.url("/mirror"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert server.requests[-1][0] == "/data"


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [(gzip.compress(BODY)[:-100], "damaged gzip"), (gzip.compress(bytes(10**8)), "holds more than the 200,000 bytes")],
    ids=["truncated", "bomb"],
)
def test_a_bad_gzip_file_of_a_web_mirror_is_refused(server, register, tmp_path, packed, complaint):
    server.plans["/mirror/127.0.0.1:9/data.gz"] = [serve(packed)]
    register("http://127.0.0.1:9/data")
    store = Store(tmp_path / "cache", mirror=server.url("/mirror"))
    with pytest.warns(UserWarning), pytest.raises(DataError, match=complaint):
        store.path("Toy", "data.bin")
    assert left_in(store, "files", "partial") == []


def test_a_server_that_compresses_on_its_own_is_understood(server, register, store):
    server.plans["/data"] = [serve(gzip.compress(BODY), Content_Encoding="gzip")]
    register(server.url("/data"))
    assert store.path("Toy", "data.bin").read_bytes() == BODY


def test_an_unchecked_file_is_never_patched_together(server, register, store):
    server.plans["/data"] = [cut(bytes(len(BODY)), 70_000), serve(BODY)]
    register(server.url("/data"), checked=False)
    assert store.path("Toy", "data.bin").read_bytes() == BODY
    assert [span for _, span in server.requests] == [None, None]


def test_a_sign_in_page_is_not_an_unchecked_file(server, register, store):
    server.plans["/data"] = [serve(b"<html>please sign in</html>")]
    register(server.url("/data"), checked=False)
    with pytest.warns(UserWarning), pytest.raises(DataError, match="is a web page"):
        store.path("Toy", "data.bin")


def test_processes_that_want_the_same_file_fetch_it_once(server, tmp_path):
    def slow(handler: Handler) -> None:
        server.over.wait(0.3)
        serve(BODY)(handler)

    server.plans["/data"] = [slow]
    program = textwrap.dedent(f"""
        from dialnb.data import sources
        from dialnb.data.sources import Source, SourceFile
        from dialnb.data.store import Store
        file = SourceFile("data.bin", ({server.url("/data")!r},), {hashlib.sha256(BODY).hexdigest()!r}, {len(BODY)})
        toy = Source("Toy", "Toy", (), "", True, "", "", "complete", "", "", (file,))
        sources.load_registry = lambda: {{"Toy": toy}}
        print(Store({str(tmp_path / "cache")!r}).path("Toy", "data.bin").stat().st_size)
    """)
    three = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=900)[0].strip() for process in three] == [str(len(BODY))] * 3
    assert len(server.requests) == 1
    assert left_in(Store(tmp_path / "cache")) == ["data.bin"]


@pytest.mark.parametrize("stage", ["downloading", "unpacking"])
def test_a_full_disk_is_reported_and_leaves_nothing_behind(server, register, store, monkeypatch, stage):
    server.plans["/data"] = [serve(BODY)]
    register(server.url("/data"))
    owner, name = (Path, "open") if stage == "downloading" else (store_module, "NamedTemporaryFile")
    real = getattr(owner, name)

    def open_on_full_disk(*arguments, **settings):
        file = real(*arguments, **settings)
        return file if arguments[1:] == ("rb",) else FullDisk(file)

    monkeypatch.setattr(owner, name, open_on_full_disk)
    with pytest.raises(DataError, match=r"No space left on device.*DIALNB_CACHE"):
        store.path("Toy", "data.bin")
    monkeypatch.undo()
    assert left_in(store) == []


class FullDisk:
    """A file that cannot grow."""

    def __init__(self, file) -> None:
        self.file, self.name = file, file.name

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, _: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_cache_that_cannot_be_written_is_reported(server, register, tmp_path):
    server.plans["/data"] = [serve(BODY)]
    register(server.url("/data"))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot be stored.*DIALNB_CACHE"):
        Store(tmp_path / "cache").path("Toy", "data.bin")
