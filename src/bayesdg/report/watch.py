"""The report of runs that are going on, on this machine alone: a tiny server on 127.0.0.1.

It answers one address, to who asks it by its own name: another page that a browser has open, and
that would have its name mean 127.0.0.1, is refused. Nothing can be changed through it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from bayesdg.bench.folder import PLAN
from bayesdg.errors import BayesdgError, UsageError
from bayesdg.report.bench import bench_sections
from bayesdg.report.build import build_page
from bayesdg.report.page import Page, Section, to_html
from bayesdg.report.prepare import prepared
from bayesdg.report.runs import read_run, run_folders

HOST = "127.0.0.1"
# What a page is made from; when they are as they were, so is the page.
WATCHED = (
    "records.jsonl", "settings.json", "manifest.json", "features.npz", "predictions", "draws.json",
)  # fmt: skip


class Live:
    """The page of some folders, made anew when their files have changed."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = places
        self._lock = Lock()
        self._made: tuple[str, bytes] = ("", b"")

    def page(self) -> tuple[str, bytes]:
        """Its tag and its content."""
        with self._lock:
            tag = state(self.places)
            if tag != self._made[0]:
                self._made = (tag, to_html(live_page(self.places), live=tag).encode())
            return self._made


def live_page(places: Sequence[Path]) -> Page:
    """The report as it is now; what stands in its way is on the page."""
    try:
        runs = [prepared(read_run(path), compute=False) for path in run_folders(places)]
        return build_page(runs, benches=bench_sections(places))
    except BayesdgError as error:
        section = Section("nothing", "Nothing yet", problems=[str(error)])
        return Page("bayesdg watch", "", [section], 0)


def state(places: Sequence[Path]) -> str:
    """A tag that changes when a file does that the page is made from."""
    digest = sha256()
    try:
        folders = run_folders(places)
    except UsageError:
        folders = []
    files = [folder / name for folder in folders for name in WATCHED]
    for place in places:
        files += [place / PLAN, *sorted(place.glob("costs/*/cost.json"))]
    for path in files:
        if path.exists():
            about = path.stat()
            digest.update(os.fsencode(f"{path}/{about.st_mtime_ns}/{about.st_size}\n"))
    return f'"{digest.hexdigest()[:32]}"'


def server(places: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """A server that listens on 127.0.0.1; port 0 takes a free one."""
    live = Live(places)
    try:
        made = ThreadingHTTPServer((HOST, port), _handler(live.page, lambda: made.server_port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"port {port} cannot be listened to ({why}); take another (--port)"
        ) from None
    made.daemon_threads = True
    return made


def _handler(
    page: Callable[[], tuple[str, bytes]], port: Callable[[], int]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "bayesdg", ""
        timeout = 30  # who says nothing for so long is gone

        def handle(self) -> None:
            with suppress(ConnectionError):  # a tab that was closed is no error
                super().handle()

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, with_body: bool) -> None:
            if self.headers.get("Host") not in (f"{HOST}:{port()}", f"localhost:{port()}"):
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                return
            if self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            tag, content = page()
            same = self.headers.get("If-None-Match") == tag
            self.send_response(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            if not same:
                self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", tag)
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            if with_body and not same:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: a line every few seconds helps nobody."""

    return Handler
