"""The webhooks' server: HTTPS, `/inject` and `/validate` for the API server, `/ready` for kubelet.

Who comes in is the API server; what leaves is its answer. Rule: nothing that comes in ends it. What is no review gets
400 and the reason; what goes wrong inside is a denial that says so, because a pod must not silently lack its proxy.
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

MOST_BYTES = 3 * 1024 * 1024  # the API server's own limit for an object
# Anybody who reaches the port can say that much, and it is in memory before anybody has looked at it. Nearly every pod
# is small, and waits for nobody.
SMALL_BYTES, LARGE_AT_ONCE = 128 * 1024, 8
READ_SECONDS = 10.0  # so long the API server itself waits for the answer; who is still asking then is none

_log = logging.getLogger("weft.inject")


class WebhookServer:
    """Start it, and replace its certificate and its injector's settings whenever they change."""

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
        """PEM. Holds from the next handshake on; raises ssl.SSLError and keeps the one before if they do not fit."""
        _load(_context(), chain, key)
        _load(self._tls, chain, key)
        self._has_certificate = True

    async def start(self, host: str | None = None, port: int = 15017) -> None:
        """None: on every address. With port 0 any free one; `port` then says which."""
        application = web.Application(client_max_size=MOST_BYTES)
        application.router.add_post("/inject", self._inject)
        application.router.add_post("/validate", self._validate)
        application.router.add_get("/ready", self._ready)
        self._site = HttpSite(application, tls=self._tls)
        self.port = await self._site.listen(host, port)

    def leave(self) -> None:
        """Nobody should ask here any more; who does is answered, and told to ask elsewhere the next time."""
        if self._site is not None:
            self._site.leave()

    async def stop(self) -> None:
        """Answers what has been asked, and ends."""
        if self._site is not None:
            await self._site.close()
            self._site = None

    def metrics(self) -> Iterable[Metric]:
        """Under Istio's names."""
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
            return web.Response(status=408, text=f"no whole review came within {READ_SECONDS:g} s\n")
        except BadReview as error:
            count(None)
            _log.warning("bad review at %s: %s", http.path, error)
            return web.Response(status=400, text=f"{error}\n")
        try:
            answer = judge(request)
            body = encode(request.uid, answer)
        except Exception as error:  # noqa: BLE001
            _log.exception("%s %s in %s could not be judged", request.kind.kind, request.name, request.namespace)
            what = f"weft failed at this {request.kind.kind or 'object'}: {type(error).__name__}: {error}"
            answer = AdmissionResponse(
                allowed=False, code=500, message=f"{what}; its log has the details: weft-control"
            )
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
    "sidecar_injection_success_total": "Injection requests that gave a pod its proxy.",
    "sidecar_injection_skip_total": "Injection requests for pods that get no proxy.",
    "sidecar_injection_failure_total": "Injection requests that failed.",
}
# They count too, but a counter's name ends in `_total` in the exposition format, and these are Istio's.
_UNTYPED = {
    "galley_validation_passed": "Objects that validation has allowed.",
    "galley_validation_failed": "Objects that validation has refused.",
}


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    with memory_file(key.rstrip() + b"\n" + chain) as path:
        context.load_cert_chain(path)
