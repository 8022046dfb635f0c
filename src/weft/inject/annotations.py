"""Reads a pod's annotations about its sidecar and checks them; the installation's settings apply where an annotation is
missing. All problems of a pod are reported together, each with its annotation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from weft.api.syntax import words
from weft.base.problem import Problem, Where
from weft.base.suggest import did_you_mean
from weft.inject import proxy_config, redirect
from weft.inject.duration import seconds_of
from weft.inject.proxy_config import MOST_WORDS
from weft.inject.quantity import amount
from weft.inject.redirect import Redirection
from weft.inject.settings import LOG_LEVELS, InjectionSettings, ProxyResources
from weft.model.proxy import METRICS_PORT, TAKEN_PORTS

SIDECAR = "sidecar.istio.io/"
STATUS = f"{SIDECAR}status"
OVERRIDES = "proxy.istio.io/overrides"
NATIVE = f"{SIDECAR}nativeSidecar"
_READINESS = "readiness.status.sidecar.istio.io/"
_MERGE = "prometheus.istio.io/merge-metrics"
_IMAGE, _REWRITE = f"{SIDECAR}proxyImage", f"{SIDECAR}rewriteAppHTTPProbers"
_LEVEL, _LEVELS = f"{SIDECAR}logLevel", f"{SIDECAR}componentLogLevel"
_VOLUMES, _MOUNTS = f"{SIDECAR}userVolume", f"{SIDECAR}userVolumeMount"
_AMOUNTS = {
    f"{SIDECAR}proxyCPU": ("requests", "cpu"),
    f"{SIDECAR}proxyMemory": ("requests", "memory"),
    f"{SIDECAR}proxyCPULimit": ("limits", "cpu"),
    f"{SIDECAR}proxyMemoryLimit": ("limits", "memory"),
}
_READ = (f"{SIDECAR}inject", STATUS, redirect.MODE, *_AMOUNTS, _IMAGE, _REWRITE, _LEVEL, _LEVELS, _VOLUMES, _MOUNTS,
         NATIVE)  # fmt: skip
# Annotations of Istio that weft does not use: they configure Istio's agent, or the proxy gets their setting in another
# way.
_UNUSED = tuple(
    SIDECAR + name
    for name in words("""
    agentLogLevel bootstrapOverride capNetBindService controlPlaneAuthPolicy discoveryAddress enableCoreDump
    extraStatTags init-containers-before-proxy proxyImageType statsCompression statsHistogramBuckets
    statsInclusionPrefixes statsInclusionRegexps statsInclusionSuffixes
    """)
)
_SUPPORTED = frozenset({*_READ, *redirect.ANNOTATIONS})
_COMPONENT = re.compile(r"[a-z0-9_]+:([a-z]+)")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # the texts that Go, and so Istio, parses as a boolean
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class InjectionRefused(Exception):
    """The pod cannot be injected as it is; its author can correct it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    redirected: bool
    redirection: Redirection
    status_port: int  # 0: no status port
    image: str
    resources: ProxyResources
    log_level: str
    component_log_level: str
    concurrency: int
    hold: bool
    native: bool | None  # None: the installation's setting
    drain_seconds: int
    termination_seconds: float
    environment: Mapping[str, str]
    rewrite_probes: bool
    prometheus: bool
    readiness: Mapping[str, int]
    volumes: tuple[dict[str, Any], ...]
    mounts: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]


def read(annotations: Mapping[str, str], settings: InjectionSettings, named: str) -> Wishes:
    """Return the sidecar settings of one pod: from its annotations, and from `settings` where an annotation is
    missing. `named` is the pod's name for messages. Raises InjectionRefused with all problems."""
    return _Reading(annotations, settings, named).wishes()


class _Reading:
    def __init__(self, annotations: Mapping[str, str], settings: InjectionSettings, named: str) -> None:
        self._annotations = annotations
        self._settings = settings
        self._named = named
        self._problems: list[Problem] = []
        self._warnings: list[str] = []

    def wishes(self) -> Wishes:
        settings = self._settings
        config = self._config()
        redirection = redirect.of_pod(self._annotations, settings.redirection)
        for name, what in islice(redirect.problems_of_redirection(redirection), MOST_WORDS):
            self._refuse(redirect.PREFIX + name, what)
        mode = self._value(redirect.MODE, config.interception_mode or redirect.REDIRECT, _mode)
        port = METRICS_PORT if config.status_port is None else config.status_port
        result = Wishes(
            redirected=mode == redirect.REDIRECT,
            redirection=redirection,
            status_port=self._value(redirect.STATUS_PORT, port, _status_port),
            image=self._value(_IMAGE, settings.image, _image),
            resources=self._resources(),
            log_level=self._value(_LEVEL, settings.log_level, _level),
            component_log_level=self._value(_LEVELS, settings.component_log_level, _levels),
            concurrency=settings.concurrency if config.concurrency is None else config.concurrency,
            hold=_first(config.hold_application_until_proxy_starts, settings.hold_application_until_proxy_starts),
            native=self._value(NATIVE, None, _flag),
            # Envoy counts whole seconds, and 0 would disable draining.
            drain_seconds=max(1, round(seconds_of(config.drain_duration or settings.drain_duration) or 0)),
            termination_seconds=seconds_of(config.termination_drain_duration or settings.termination_drain_duration)
            or 0.0,
            environment=config.proxy_metadata,
            rewrite_probes=self._value(_REWRITE, settings.rewrite_app_probes, _flag),
            prometheus=self._value(_MERGE, settings.prometheus_annotations, _flag),
            readiness={
                name: self._value(_READINESS + name, default, _seconds)
                for name, default in (("initialDelaySeconds", 0), ("periodSeconds", 15), ("failureThreshold", 4))
            },
            volumes=self._entries(_VOLUMES),
            mounts=self._entries(_MOUNTS),
            warnings=(*self._warnings, *self._unread()),
        )
        if self._problems:
            raise InjectionRefused(self._problems)
        return result

    def _config(self) -> proxy_config.ProxyConfig:
        config, errors, warnings = proxy_config.read(self._annotations.get(proxy_config.ANNOTATION, ""))
        for what in errors:
            self._refuse(proxy_config.ANNOTATION, what)
        self._warnings += [f"{proxy_config.ANNOTATION}: {what}" for what in warnings]
        return config

    def _value(self, annotation: str, default: Any, read: Callable[[str], Any]) -> Any:
        text = self._annotations.get(annotation)
        if text is None:
            return default
        try:
            return read(text.strip())
        except ValueError as error:
            self._refuse(annotation, str(error))
            return default

    def _resources(self) -> ProxyResources:
        """Return the proxy's requests and limits. If a pod sets only a request and it is above the default limit, the
        limit is raised to the request. If a pod sets only a limit and it is below the default request, the request is
        lowered to the limit."""
        default = self._settings.resources
        quantities = {"requests": dict(default.requests), "limits": dict(default.limits)}
        given: set[tuple[str, str]] = set()
        for annotation, (kind, name) in _AMOUNTS.items():
            text = self._annotations.get(annotation)
            if text is None:
                continue
            if amount(text) is None:
                self._refuse(annotation, f"`{text[:64]}` is not an amount such as 100m or 128Mi")
                continue
            quantities[kind][name] = text
            given.add((kind, name))
        for name in ("cpu", "memory"):
            request, limit = amount(quantities["requests"].get(name, "0")), amount(quantities["limits"].get(name, ""))
            if limit is None or request is None or request <= limit:
                continue
            if ("requests", name) not in given:
                quantities["requests"][name] = quantities["limits"][name]
            elif ("limits", name) not in given:
                quantities["limits"][name] = quantities["requests"][name]
            else:
                annotation = next(key for key, value in _AMOUNTS.items() if value == ("requests", name))
                what = (
                    f"the request of {quantities['requests'][name]} is above the limit of {quantities['limits'][name]}"
                )
                self._refuse(annotation, what)
        return ProxyResources(requests=quantities["requests"], limits=quantities["limits"])

    def _entries(self, annotation: str) -> tuple[dict[str, Any], ...]:
        """Parse an annotation with volumes or mounts as JSON: an object that maps names to entries, or a list of
        entries with names, because Istio accepts both. Return the entries, each with its name."""
        text = self._annotations.get(annotation)
        if text is None:
            return ()
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._refuse(annotation, f"this is not JSON: {error}")
            return ()
        if isinstance(document, dict):
            document = [
                {"name": name, **value} if isinstance(value, dict) else value for name, value in document.items()
            ]
        entries = document if isinstance(document, list) else [document]
        if not all(isinstance(each, dict) and isinstance(each.get("name"), str) and each["name"] for each in entries):
            self._refuse(annotation, 'it must be JSON such as {"name": {…}} or [{"name": "…", …}]')
            return ()
        return tuple(entries)

    def _unread(self) -> list[str]:
        known = (*_SUPPORTED, *_UNUSED)
        warnings: list[str] = []
        for name in sorted(self._annotations):
            if not name.startswith((SIDECAR, redirect.PREFIX)) or name in _SUPPORTED:
                continue
            if len(warnings) >= MOST_WORDS:
                break
            if name in _UNUSED:
                warnings.append(f"weft does not use the annotation {name}")
            else:
                warnings.append(f"unknown annotation {name}: {did_you_mean(name, known)}".rstrip(": "))
        return warnings

    def _refuse(self, annotation: str, what: str) -> None:
        self._problems.append(Problem(Where(object=self._named, field=f"metadata.annotations[{annotation}]"), what))


def _first(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _mode(text: str) -> str:
    if text == redirect.TPROXY:
        raise ValueError("TPROXY is not supported: use REDIRECT; the proxy sees the caller's address in both modes")
    if text not in (redirect.REDIRECT, redirect.NONE):
        raise ValueError(f"`{text[:64]}` is unknown: use REDIRECT, or NONE for no redirect to the proxy")
    return text


def _flag(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError(f"`{text[:64]}` is neither true nor false")
    return text in _TRUE


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"`{text[:64]}` is not a whole number")
    return int(text)


def _status_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 65536):
        raise ValueError(f"`{text[:64]}` is neither a port nor 0 (no status port)")
    if int(text) in TAKEN_PORTS:
        raise ValueError(f"the proxy already uses port {text}")
    return int(text)


def _image(text: str) -> str:
    if not text or any(each.isspace() for each in text):
        raise ValueError(f"`{text[:64]}` is not an image name")
    return text


def _level(text: str) -> str:
    if text not in LOG_LEVELS:
        raise ValueError(f"`{text[:64]}` is not a log level; use one of {', '.join(LOG_LEVELS)}")
    return text


def _levels(text: str) -> str:
    for part in text.split(","):
        match = _COMPONENT.fullmatch(part)
        if match is None or match[1] not in LOG_LEVELS:
            raise ValueError(f"`{part[:64]}` is not a component's log level, such as upstream:debug")
    return text
