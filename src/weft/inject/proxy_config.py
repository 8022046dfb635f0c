"""Parses the annotation `proxy.istio.io/config`: YAML with the fields of Istio's ProxyConfig.

A field that weft does not use gives a warning. An invalid value of a field that weft uses rejects the pod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from weft.api.syntax import words
from weft.api.yaml_text import YamlError, compose
from weft.base.suggest import did_you_mean
from weft.inject.duration import seconds_of

ANNOTATION = "proxy.istio.io/config"
MOST_WORDS = 20  # messages per annotation: the author of a pod must not slow down the webhook
_MOST_NODES = 2_000  # values in the annotation; ProxyConfig has about a hundred fields

# Istio's other fields. Envoy gets their settings from the control plane, or they configure Istio's own agent.
_UNUSED = frozenset(
    words("""
    configPath binaryPath customConfigFile statsUdpAddress proxyAdminPort controlPlaneAuthPolicy serviceCluster
    discoveryAddress statNameLength tracing tracingServiceName sds envoyAccessLogService envoyMetricsService
    availabilityZone extraStatTags gatewayTopology proxyStatsMatcher readinessProbe caCertificatesPem image
    privateKeyProvider proxyHeaders fileFlushInterval fileFlushMinSizeKb statsCompression zipkinAddress meshId
    proxyBootstrapTemplatePath parentShutdownDuration
    """)
)


class ProxyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ProxyConfig that weft uses. None: not set in the annotation."""

    concurrency: int | None = None
    hold_application_until_proxy_starts: bool | None = None
    termination_drain_duration: str | None = None
    drain_duration: str | None = None
    interception_mode: str | None = None
    status_port: int | None = None
    proxy_metadata: dict[str, str] = {}


def read(text: str) -> tuple[ProxyConfig, list[str], list[str]]:
    """Parse the annotation's `text`. Return the configuration, the errors, and the warnings."""
    try:
        composed = compose(text, most_nodes=_MOST_NODES)
    except YamlError as error:
        return ProxyConfig(), [error.flaw.what], []
    document = {} if composed.value is None else composed.value
    if not isinstance(document, dict):
        return ProxyConfig(), ["it must be a mapping, such as `concurrency: 2`"], []
    errors: list[str] = []
    warnings: list[str] = []
    values: dict[str, Any] = {}
    for name, value in document.items():
        reader = _READERS.get(name)
        if reader is not None:
            field, read_value = reader
            try:
                values[field] = read_value(value)
            except ValueError as error:
                errors.append(f"{name}: {error}")
        elif len(warnings) >= MOST_WORDS:
            continue
        elif name in _UNUSED:
            warnings.append(f"weft does not use `{name}`")
        else:
            hint = did_you_mean(name, (*_READERS, *_UNUSED))
            warnings.append(f"unknown field `{name}`" + (f": {hint}" if hint else ""))
    return ProxyConfig(**values), errors, warnings


def _count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1024:
        return value
    raise ValueError(f"`{value}` is not a number from 0 to 1024")


def _port(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535:
        return value
    raise ValueError(f"`{value}` is not a port")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"`{value}` is neither true nor false")


def _duration(value: Any) -> str:
    if isinstance(value, str) and seconds_of(value) is not None:
        return value
    raise ValueError(f"`{value}` is not a duration such as 5s or 1m30s")


def _mode(value: Any) -> str:
    if value in ("REDIRECT", "NONE"):
        return str(value)
    raise ValueError(f"`{value}` is not supported: use REDIRECT, or NONE for no redirect to the proxy")


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, (str, int, float, bool)) for each in value.values()):
        raise ValueError("it must be a mapping of names to strings")
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in sorted(value.items())}


_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "concurrency": ("concurrency", _count),
    "holdApplicationUntilProxyStarts": ("hold_application_until_proxy_starts", _flag),
    "terminationDrainDuration": ("termination_drain_duration", _duration),
    "drainDuration": ("drain_duration", _duration),
    "interceptionMode": ("interception_mode", _mode),
    "statusPort": ("status_port", _port),
    "proxyMetadata": ("proxy_metadata", _environment),
}
