"""The settings of an installation for the sidecars it injects: the JSON in its ConfigMap, as a value.

`read` is the only parser; `read_config_map` finds the JSON in the data of the ConfigMap. `read` rejects an unknown
field or an impossible value with the field's name: a misspelled setting that is ignored would show only much later, in
pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

import weft
from weft.base.problem import Problem, Where
from weft.base.suggest import did_you_mean
from weft.inject.duration import seconds_of
from weft.inject.quantity import problem_of_quantity
from weft.inject.redirect import Redirection, problems_of_redirection
from weft.inject.selector import Selector
from weft.model.names import CLUSTER_NAMESPACES
from weft.model.proxy import IDENTITY_DRIVER

KEY = "settings"  # key of the settings in the ConfigMap; the keys `values` and `config` are for Istio's tools
LOG_LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "critical", "off")

IpFamily = Literal["IPv4", "IPv6"]


class ProxyResources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The resource requests and limits of a container: Kubernetes quantities by the resource's name, such as cpu or
    memory."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


# An idle Envoy uses about 15 MB of private memory; the limits are Istio's.
_PROXY = ProxyResources(requests={"cpu": "10m", "memory": "64Mi"}, limits={"cpu": "2", "memory": "1Gi"})
_INIT = ProxyResources(requests={"cpu": "10m", "memory": "64Mi"}, limits={"cpu": "2", "memory": "256Mi"})


class InjectionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    image: str = f"weft:{weft.__version__}"
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    image_pull_secrets: tuple[str, ...] = ()
    resources: ProxyResources = _PROXY
    init_resources: ProxyResources = _INIT
    # auto: if the cluster supports them.
    native_sidecars: Literal["auto", "on", "off"] = "auto"
    # Only for sidecars that are not native: native ones always start first.
    hold_application_until_proxy_starts: bool = True
    termination_drain_duration: str = "5s"
    # Whether the application gets SIGTERM only after terminationDrainDuration. Its callers switch to other endpoints
    # meanwhile.
    hold_application_while_draining: bool = True
    drain_duration: str = "45s"
    # What installs the redirect: an init container in the pod, or the node's agent.
    redirect_by: Literal["init", "node"] = "init"
    # What is redirected by default; a pod's annotations override it.
    redirection: Redirection = Redirection()
    log_level: str = "warning"
    component_log_level: str = "misc:error"
    concurrency: int = 1
    cluster_domain: str = "cluster.local"
    trust_domain: str = "cluster.local"
    cluster_id: str = "Kubernetes"
    mesh_id: str = ""  # empty: the trust domain
    network: str = ""
    revision: str = "default"
    root_namespace: str = "istio-system"
    driver: str = IDENTITY_DRIVER
    # HOST:PORT of a control plane that proxies connect to directly; empty: they connect through the node's agent.
    control: str = ""
    # The families of pod addresses in this cluster, the primary one first.
    ip_families: tuple[IpFamily, ...] = ("IPv4",)
    # Whether a pod without the label sidecar.istio.io/inject gets a sidecar in a selected namespace.
    auto_inject: bool = True
    # Whether a namespace without any injection label is selected.
    enable_namespaces_by_default: bool = False
    # Namespaces whose pods never get a sidecar, whatever their labels.
    excluded_namespaces: tuple[str, ...] = CLUSTER_NAMESPACES
    never_inject_selector: tuple[Selector, ...] = ()
    always_inject_selector: tuple[Selector, ...] = ()
    injected_annotations: dict[str, str] = {}
    rewrite_app_probes: bool = True
    # Whether pods without Prometheus annotations get annotations for their proxy's metrics.
    prometheus_annotations: bool = True


class SettingsError(Exception):
    """The settings cannot be used; `problem` has the field and the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read(text: str | bytes, named: str = "the injector's settings") -> InjectionSettings:
    """Parse the JSON of the settings. `named` is its origin, such as `ConfigMap istio-system/istio-sidecar-injector`.
    Raises SettingsError."""
    try:
        settings = msgspec.json.decode(text, type=InjectionSettings)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        raise _refusal(named, place.strip("`$").removeprefix("."), what, _hint(what)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(named, "", f"this is not JSON: {error}", "") from None
    _check(settings, named)
    return settings


def read_config_map(data: Mapping[str, str], named: str) -> InjectionSettings:
    """Parse the settings in the `data` of the ConfigMap `named`; the default settings if it has none. Versions of weft
    before the key `settings` wrote them under `values`, which has Istio's format since. Raises SettingsError."""
    return read(data[KEY] if KEY in data else data.get("values", "{}"), named)


def encode(settings: InjectionSettings) -> str:
    """Return all settings as JSON, for the ConfigMap."""
    return msgspec.json.format(msgspec.json.encode(settings), indent=2).decode()


def _check(settings: InjectionSettings, named: str) -> None:
    def refuse(field: str, what: str, hint: str = "") -> None:
        raise _refusal(named, field, what, hint)

    for field, duration in (
        ("terminationDrainDuration", settings.termination_drain_duration),
        ("drainDuration", settings.drain_duration),
    ):
        if seconds_of(duration) is None:
            refuse(field, f"`{duration}` is not a duration", "write it as 5s, 1m30s or 500ms")
    for part, resources in (("resources", settings.resources), ("initResources", settings.init_resources)):
        for kind, quantities in (("requests", resources.requests), ("limits", resources.limits)):
            for name, quantity in quantities.items():
                if what := problem_of_quantity(quantity):
                    refuse(f"{part}.{kind}.{name}", what, "write it as 100m or 128Mi")
    if settings.log_level not in LOG_LEVELS:
        refuse("logLevel", f"`{settings.log_level}` is not a log level of Envoy", f"use one of {', '.join(LOG_LEVELS)}")
    for pair in filter(None, settings.component_log_level.split(",")):
        if pair.partition(":")[2] not in LOG_LEVELS:
            refuse(
                "componentLogLevel", f"`{pair}` is not COMPONENT:LEVEL", f"a level is one of {', '.join(LOG_LEVELS)}"
            )
    if not settings.image:
        refuse("image", "it is empty", f"for example weft:{weft.__version__}")
    if not settings.revision:
        refuse("revision", "it is empty", "the name of the default revision is `default`")
    if settings.concurrency < 0:
        refuse("concurrency", f"{settings.concurrency} is below 0", "0 means one worker for each core")
    if not settings.ip_families or len(set(settings.ip_families)) != len(settings.ip_families):
        refuse("ipFamilies", "it must list one address family, or both", 'for example ["IPv4", "IPv6"]')
    if settings.control and not _is_host_and_port(settings.control):
        refuse("control", f"`{settings.control}` is not HOST:PORT", "for example istiod.istio-system.svc:15012")
    for field, what in problems_of_redirection(settings.redirection):
        refuse(f"redirection.{field}", what)


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536


def _hint(what: str) -> str:
    """Return a hint for the error message `what` of the parser: the known field that is most similar to the unknown
    field in the message. Return "" if the message is about something else."""
    word = what.partition("unknown field `")[2].rstrip("`")
    if word in ("global", "pilot", "sidecarInjectorWebhook"):
        return f"these are values for Istio's tools; weft's settings are under the key `{KEY}` of the ConfigMap"
    known: list[Any] = [
        *InjectionSettings.__struct_encode_fields__,
        *Redirection.__struct_encode_fields__,
        "requests",
        "limits",
    ]
    return did_you_mean(word, known) if word else ""


def _refusal(named: str, field: str, what: str, hint: str) -> SettingsError:
    return SettingsError(Problem(Where(object=named, field=field), what[:1].lower() + what[1:], hint))
