"""The HTTPS server of the webhooks: `/inject` and `/validate` for the API server, `/ready` for kubelet.

Rule: no request can end the server. A body that is not an AdmissionReview gets status 400 and the reason. An internal
error becomes a denial with the error, because a pod must not silently run without its proxy.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext

from aiohttp import web
from prometheus_client.core import (
    CounterMetricFamily,
    Metric,
    SummaryMetricFamily,
    UnknownMetricFamily,
)

from weft.base.http_site import HttpSite
from weft.base.secrecy import memory_file
from weft.inject.injector import Injector
from weft.inject.review import AdmissionRequest, AdmissionResponse, BadReview, decode, encode
from weft.inject.validation import validate

MOST_BYTES = 3 * 1024 * 1024  # the API server's limit for an object
# Any client that reaches the port can send MOST_BYTES, and a body is in memory before it is checked. So only
# LARGE_AT_ONCE large bodies are read at a time. Nearly every pod is small, and is read without waiting.
SMALL_BYTES, LARGE_AT_ONCE = 128 * 1024, 8
READ_SECONDS = 10.0  # as long as the API server waits for a response; a slower sender is not the API server

_log = logging.getLogger("weft.inject")


class WebhookServer:
    """The webhook server. Its certificate and its injector's settings may be replaced while it runs."""

    def __init__(self, injector: Injector, *, domain: str = "cluster.local") -> None:
        self.injector = injector
        self.port = 0
        self._domain = domain
        self._counts: Counter[str] = Counter()
        self._seconds = 0.0
        self._tls = _context()
        self._has_certificate = False
        self._site: HttpSite | None = None
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)

    def use_certificate(self, chain: bytes, key: bytes) -> None:
        """Use this certificate `chain` and key (PEM) from the next handshake on. If they do not fit together, raises
        ssl.SSLError and keeps the current ones."""
        _load(_context(), chain, key)
        _load(self._tls, chain, key)
        self._has_certificate = True

    async def start(self, host: str | None = None, port: int = 15017) -> None:
        """Listen on `host` (None: on every address). With port 0 any free port is used; `self.port` is set to it."""
        application = web.Application(client_max_size=MOST_BYTES)
        application.router.add_post("/inject", self._inject)
        application.router.add_post("/validate", self._validate)
        application.router.add_get("/ready", self._ready)
        self._site = HttpSite(application, tls=self._tls)
        self.port = await self._site.listen(host, port)

    def leave(self) -> None:
        """Prepare to stop: keep answering, but close each connection with its next response, so that clients connect to
        another replica."""
        if self._site is not None:
            self._site.leave()

    async def stop(self) -> None:
        """Close the port, wait a few seconds for the requests in progress, and stop."""
        if self._site is not None:
            await self._site.close()
            self._site = None

    def metrics(self) -> Iterable[Metric]:
        """Return the webhooks' metrics under Istio's names."""
        for name, what in _COUNTERS.items():
            yield CounterMetricFamily(name, what, self._counts[name])
        for name, what in _UNTYPED.items():
            yield UnknownMetricFamily(name, what, self._counts[name])
        requests = self._counts["sidecar_injection_requests_total"]
        yield SummaryMetricFamily(
            "sidecar_injection_time_seconds", "Time taken to answer injection requests.", requests, self._seconds
        )

    async def _inject(self, http: web.Request) -> web.Response:
        self._counts["sidecar_injection_requests_total"] += 1
        began = time.perf_counter()
        try:
            return await self._answer(http, self.injector.answer, self._count_injection)
        finally:
            self._seconds += time.perf_counter() - began

    async def _validate(self, http: web.Request) -> web.Response:
        return await self._answer(http, lambda request: validate(request, self._domain), self._count_validation)

    async def _ready(self, _: web.Request) -> web.Response:
        if not self._has_certificate:
            return web.Response(status=503, text="no certificate yet\n")
        return web.Response(text="ready\n")

    async def _answer(
        self,
        http: web.Request,
        judge: Callable[[AdmissionRequest], AdmissionResponse],
        count: Callable[[AdmissionResponse | None], None],
    ) -> web.Response:
        if http.content_type != "application/json":
            count(None)
            return web.Response(status=415, text=f"expected application/json, not {http.content_type[:100]}\n")
        try:
            is_small = http.content_length is not None and http.content_length <= SMALL_BYTES
            async with asyncio.timeout(READ_SECONDS), nullcontext() if is_small else self._places:
                body = await http.read()
            request = decode(body)
        except TimeoutError:
            count(None)
            return web.Response(status=408, text=f"the AdmissionReview was not complete within {READ_SECONDS:g} s\n")
        except BadReview as error:
            count(None)
            _log.warning("rejected an invalid AdmissionReview at %s: %s", http.path, error)
            return web.Response(status=400, text=f"{error}\n")
        try:
            answer = judge(request)
            body = encode(request.uid, answer)
        except Exception as error:  # noqa: BLE001
            _log.exception("cannot review %s %s in namespace %s", request.kind.kind, request.name, request.namespace)
            what = f"internal error of weft for this {request.kind.kind or 'object'}: {type(error).__name__}: {error}"
            answer = AdmissionResponse(allowed=False, code=500, message=f"{what}; see the log of weft-control")
            body = encode(request.uid, answer)
        count(answer)
        return web.Response(body=body, content_type="application/json")

    def _count_injection(self, answer: AdmissionResponse | None) -> None:
        if answer is None or not answer.allowed:
            self._counts["sidecar_injection_failure_total"] += 1
        elif answer.patch:
            self._counts["sidecar_injection_success_total"] += 1
        else:
            self._counts["sidecar_injection_skip_total"] += 1

    def _count_validation(self, answer: AdmissionResponse | None) -> None:
        passed = answer is not None and answer.allowed
        self._counts["galley_validation_passed" if passed else "galley_validation_failed"] += 1


_COUNTERS = {
    "sidecar_injection_requests_total": "Injection requests.",
    "sidecar_injection_success_total": "Injection requests that added a proxy to a pod.",
    "sidecar_injection_skip_total": "Injection requests for pods that get no proxy.",
    "sidecar_injection_failure_total": "Injection requests that failed.",
}
# These are counters too, but the exposition format wants `_total` at the end of a counter's name, and Istio's names
# lack it.
_UNTYPED = {
    "galley_validation_passed": "Objects that validation allowed.",
    "galley_validation_failed": "Objects that validation rejected.",
}


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    with memory_file(key.rstrip() + b"\n" + chain) as path:
        context.load_cert_chain(path)
