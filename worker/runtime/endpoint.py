"""One HTTP port of a worker: ``/metrics``, ``/healthz``, ``/readyz``.

Liveness (``/healthz``) asks the event loop alone: a Redis that is away must not restart the fleet.
Readiness (``/readyz``) also asks for a connection and that the worker is not draining.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from prometheus_client.exposition import choose_encoder

from ..settings import DEFAULT_METRICS_PORT

log = logging.getLogger("worker.endpoint")

Probe = Callable[[], str]  # "" when all is well, else what is not


class Source(Protocol):
    """What is served under /metrics."""

    def collect(self) -> Iterable[Any]: ...


class PortTaken(Exception):
    """The port asked for is taken."""


class Endpoint:
    """The server, in a thread of its own.

    Args:
        port: None takes the default port, or a free one when that is taken; 0 takes a free one; any other
            must be free.

    Raises:
        PortTaken: an explicit `port` is taken.
    """

    def __init__(
        self,
        source: Source,
        *,
        alive: Probe,
        ready: Probe,
        port: int | None = None,
        host: str = "",
    ) -> None:
        handler = type("Handler", (_Handler,), {"source": source, "alive": alive, "ready": ready})
        self._server = _bind(host, port, handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="endpoint",
            daemon=True,
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()
        log.info("serving /metrics, /healthz and /readyz", extra={"port": self.port})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _bind(host: str, port: int | None, handler: Any) -> ThreadingHTTPServer:
    try:
        return _Server((host, DEFAULT_METRICS_PORT if port is None else port), handler)
    except OSError as error:
        if port is not None:
            raise PortTaken(f"port {port} cannot be used for metrics: {error.strerror}") from error
    log.warning("port %d is taken: metrics are on a free one", DEFAULT_METRICS_PORT)
    return _Server((host, 0), handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Where SO_REUSEADDR lets two live listeners share a port, a taken port would go unnoticed; on Linux
    # and macOS it only skips the wait after a restart.
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request to the endpoint failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    source: Source
    alive: Probe
    ready: Probe
    timeout = 10  # seconds for one request

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(200, encode(self.source), content_type)
            case "/healthz":
                self._probe(type(self).alive())
            case "/readyz":
                self._probe(type(self).alive() or type(self).ready())
            case _:
                self._answer(404, b"/metrics /healthz /readyz\n", "text/plain")

    def _probe(self, trouble: str) -> None:
        self._answer(503 if trouble else 200, f"{trouble or 'ok'}\n".encode(), "text/plain")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: silence."""
