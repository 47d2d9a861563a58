"""Read-only pages for the browsers of this machine, on 127.0.0.1 only.

The caller decides which pages exist: a path of an address is a key, and no path of a file.
"""

from __future__ import annotations

import errno
import socketserver
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from train_bench.errors import RequestError, TrainBenchError

ADDRESS = "127.0.0.1"
PATIENCE_SECONDS = 10
"""Time limit for a browser's question, and for taking the answer."""

WAIT_SECONDS = 20.0
"""Time limit of a page for the one before it."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer. Each page says itself which scripts run."""

Page = Callable[[str], str | None]
"""A path of an address to a page of HTML; None where there is none."""


class Server(ThreadingHTTPServer):
    """Server of the output of `page`, one page at a time. Raises `RequestError` if the port is not available."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, page: Page, port: int) -> None:
        self.page, self.alone = page, Lock()
        try:
            super().__init__((ADDRESS, port), Handler)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "is taken" if taken else f"cannot be had ({error})"
            raise RequestError(
                f"Port {port} {why}; give another with --port, 0 for any that is free."
            ) from error

    def server_bind(self) -> None:
        """Bind without looking up the name of this host, which the parent does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def hosts(self) -> set[str]:
        """Host names of this server. A foreign name that resolves here is refused: pages of that name could read the
        served pages."""
        named = {f"{host}:{self.server_port}" for host in (ADDRESS, "localhost")}
        return named | {ADDRESS, "localhost"} if self.server_port == 80 else named

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that went away; print nothing on the terminal."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request of a browser."""

    server: Server
    timeout = PATIENCE_SECONDS
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        """Send a page."""
        if self.headers.get_all("Host", []) not in ([host] for host in self.server.hosts):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self.send_error(HTTPStatus.FORBIDDEN)  # a page from another site could keep this machine busy
            return
        try:
            path = urlsplit(self.path).path
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        if path == "/favicon.ico":  # browsers ask for it, whatever a page says
            self._answer(HTTPStatus.OK, "", "image/x-icon")
            return
        try:
            if not self.server.alone.acquire(timeout=WAIT_SECONDS):
                busy = f"Another page has taken more than {WAIT_SECONDS:g} s and is not finished; ask again later.\n"
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, busy, "text/plain")
                return
            try:
                page = self.server.page(path)
            finally:
                self.server.alone.release()
        except (TrainBenchError, OSError, ValueError) as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n", "text/plain")
            return
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._answer(HTTPStatus.OK, page, "text/html")

    do_HEAD = do_GET

    def _refused(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refused

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        content = text.encode("utf-8", errors="backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def end_headers(self) -> None:
        """Add the headers of every response."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """No versions."""
        return "train-bench"

    def log_message(self, format: str, *args: Any) -> None:
        """Print no line per request."""
