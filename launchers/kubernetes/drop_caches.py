"""Page caches of a node, for pods that have no right to drop them. A privileged pod on each node (`drop_caches.yaml`)
runs `python -m train_bench.launchers.kubernetes.drop_caches serve`; without `serve`, that is a `drop_caches_command` of
the pods, which asks the one on their node."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ADDRESS = "TRAIN_BENCH_NODE"
"""Environment variable of the pods with the address of their node."""

PORT = 29399
DROP = Path("/proc/sys/vm/drop_caches")
ANSWER_SECONDS = 600.0
"""Much has to be written to disks before it can be dropped."""

CLIENT_SECONDS = 10.0
"""Time that who asks has for the request."""


class _Server(ThreadingHTTPServer):
    """Of IPv4 and, where there is one, IPv6."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def served(port: int = PORT) -> ThreadingHTTPServer:
    """Server that drops the caches at each POST."""

    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def do_POST(self) -> None:
            try:
                with one_at_a_time:
                    os.sync()
                    DROP.write_text("3\n")
            except OSError as error:
                self.send_error(500, f"{DROP}: {error.strerror}")
                return
            self.send_response(204)
            self.end_headers()

    return _Server(("", port), Handler)


def dropped(address: str, port: int = PORT) -> str | None:
    """Have them dropped on the node with this address; a sentence if they are not."""
    connection = http.client.HTTPConnection(address, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", "/")
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        return f"{address}:{port} does not answer ({error}); kubectl apply -f launchers/kubernetes/drop_caches.yaml."
    finally:
        connection.close()
    return None if answer.status == 204 else f"The caches of {address} were not dropped: {answer.reason}."


def main() -> None:
    """Carry out the program."""
    if sys.argv[1:] == ["serve"]:
        served().serve_forever()
    sys.exit(dropped(os.environ.get(ADDRESS, "127.0.0.1")))


if __name__ == "__main__":
    main()
