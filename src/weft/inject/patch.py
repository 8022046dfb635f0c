"""Injects the proxy into a pod: a pod comes in, and the same pod with its proxy is returned. Both the webhook and `weft
kube-inject` use it.

Injection may run several times on one pod (reinvocation). An earlier injection is removed first, so that containers and
probes which another webhook added since are included. In weft's own containers only the parts that depend on the rest
of the pod are then replaced, so that changes by other webhooks are kept. Injection adds nothing that would change which
webhook selects the pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.base.problem import Problem, Where
from weft.inject import annotations as wishes_of_pod
from weft.inject import containers, gateway, lingering, overrides, probes, redirect
from weft.inject.annotations import OVERRIDES, STATUS, InjectionRefused
from weft.inject.json_patch import Operation, copied, difference
from weft.inject.owner import WorkloadOwner, canonical_name, canonical_revision, owner_of
from weft.inject.pod_shape import flaw_of_pod
from weft.inject.settings import InjectionSettings
from weft.inject.sidecar import InjectedSidecar, Renderer, for_kubelet, variable
from weft.inject.stripped import OURS, InjectionStatus, Stripped, strip
from weft.inject.webhooks import REVISION_LABEL
from weft.model.proxy import (
    ADMIN_PORT,
    IDENTITY_MOUNT,
    IDENTITY_VOLUME,
    PROXY_GID,
    PROXY_UID,
    SDS_SOCKET,
    TAKEN_PORTS,
    XDS_SOCKET,
)

_SIDECAR = "sidecar"
_TLS_MODE = "security.istio.io/tlsMode"
_CANONICAL_NAME, _CANONICAL_REVISION = "service.istio.io/canonical-name", "service.istio.io/canonical-revision"
_MOST_ANNOTATIONS = 256 * 1024  # the API server's limit, which it checks only after the webhooks
_LONGEST_TEXT = 128 * 1024 - 1  # bytes of one argument or variable: the kernel's limit for exec
_DEFAULT_CONTAINER = ("kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container")
_PROMETHEUS = re.compile(
    r"prometheus[^a-z]io[^a-z](scrape|port|path)", re.IGNORECASE
)  # Prometheus treats these spellings alike


class Injected(msgspec.Struct, frozen=True):
    pod: dict[str, Any]
    warnings: tuple[str, ...]


def inject(
    pod: dict[str, Any],
    namespace: str,
    settings: InjectionSettings,
    render: Renderer,
    *,
    native_sidecars: bool,
    sleep_hooks: bool = True,
    owner: WorkloadOwner | None = None,
) -> Injected:
    """Return a copy of the pod with its proxy, and warnings for its author. `render`: returns Envoy's arguments for the
    sidecar. `native_sidecars` and `sleep_hooks`: whether the cluster supports native sidecars and lifecycle hooks that
    sleep. `owner`: the workload that owns the pod, if `pod` is a pod template; None: the owner is found in the pod's
    metadata. Raises InjectionRefused."""
    named = _name(pod, namespace)
    _check_shape(pod, named)
    injection = _Injection(strip(pod), namespace, settings, render, named, native_sidecars, owner)
    return injection.result(sleep_hooks=sleep_hooks)


def patch(before: dict[str, Any], injected: Injected) -> list[Operation]:
    return difference(before, injected.pod)


class _Injection:
    def __init__(
        self,
        stripped: Stripped,
        namespace: str,
        settings: InjectionSettings,
        render: Renderer,
        named: str,
        native_sidecars: bool,
        owner: WorkloadOwner | None,
    ) -> None:
        self._stripped = stripped
        self._pod = stripped.pod
        self._metadata: dict[str, Any] = self._pod["metadata"]
        self._spec: dict[str, Any] = self._pod["spec"]
        self._namespace = namespace
        self._settings = settings
        self._render = render
        self._named = named
        self._owner = owner or owner_of(self._metadata)
        self._wishes = wishes_of_pod.read(_strings(self._metadata.get("annotations")), settings, named)
        self._gateway = gateway.is_gateway(_strings(self._metadata.get("annotations")), named)
        if self._gateway:
            self._wishes = gateway.of_gateway(self._wishes, settings, stripped.overrides.get(containers.PROXY, {}))
        default = native_sidecars if settings.native_sidecars == "auto" else settings.native_sidecars == "on"
        self._native = default if self._wishes.native is None else self._wishes.native
        self._by_hook = containers.asks_by_hook(self._wishes, settings, native=self._native)
        self._check_user()

    def result(self, *, sleep_hooks: bool) -> Injected:
        warnings = [*self._wishes.warnings, *self._warnings()]
        self._label()
        checks, originals = self._rewrite_probes()
        ours = self._containers(checks, originals)
        if sleep_hooks and self._wishes.redirected and self._settings.hold_application_while_draining:
            lingering.linger(self._spec, 0 if self._finishes else self._wishes.termination_seconds)
        volumes = [*self._own_volumes(), *self._wishes.volumes]
        self._place(ours)
        self._add_volumes(volumes)
        self._add_pull_secrets()
        if self._gateway:
            gateway.open_low_ports(self._spec)
        self._annotate(ours, volumes)
        return Injected(self._pod, tuple(f"{self._named}: {each}" for each in warnings))

    def _label(self) -> None:
        labels: dict[str, str] = self._metadata.setdefault("labels", {})
        if not self._gateway:
            labels.setdefault(_TLS_MODE, "istio")
        labels.setdefault(_CANONICAL_NAME, canonical_name(self._metadata, self._owner))
        labels.setdefault(_CANONICAL_REVISION, canonical_revision(self._metadata))

    def _rewrite_probes(self) -> tuple[Any, probes.Originals]:
        wishes = self._wishes
        if not (wishes.redirected and wishes.rewrite_probes and wishes.status_port):
            return (), {}
        staying = [each for each in self._spec.get("initContainers", ()) if each.get("restartPolicy") == "Always"]
        return probes.rewrite(
            [*self._spec["containers"], *staying],
            port=wishes.status_port,
            ipv6=self._settings.ip_families[0] == "IPv6",
        )

    def _containers(self, checks: Any, originals: probes.Originals) -> list[dict[str, Any]]:
        """Return weft's containers, in the order in which they start. `checks`: the checks of the application that the
        proxy makes. `originals`: the probes that these checks replace. `probes.rewrite` returns both."""
        wishes, settings = self._wishes, self._settings
        variables = self._variables(originals)
        arguments = [for_kubelet(each) for each in self._render(self._sidecar(checks, variables))]
        proxy = containers.proxy(
            wishes,
            settings,
            arguments=arguments,
            variables=variables,
            native=self._native,
            finishes=self._finishes,
            gateway=self._gateway,
        )
        self._check_lengths(proxy)
        ours = [proxy]
        if wishes.redirected and not self._by_hook:
            ours.insert(0, containers.redirecting(wishes, settings))
        return [self._with_overrides(each) for each in ours]

    @property
    def _finishes(self) -> bool:
        return self._spec.get("restartPolicy") in ("Never", "OnFailure")

    def _with_overrides(self, container: dict[str, Any]) -> dict[str, Any]:
        """Merge the pod's overrides into weft's `container`, and return the result. If this revision has injected a
        container of this name before, return that existing container, with only its arguments and weft's own
        variables replaced."""
        name = container["name"]
        fresh = overrides.merge(container, self._stripped.overrides.get(name, {}))
        current = self._stripped.current.get(name)
        status = self._stripped.status
        if current is None or status is None or status.revision != self._settings.revision:
            result = fresh
        else:
            result = copied(current)
            result["args"] = fresh["args"]
            if "env" in fresh:
                result["env"] = _with_own_variables(result.get("env") or [], fresh["env"])
        if self._by_hook and name == containers.PROXY:
            # Without this hook the pod would run without a redirect, so it cannot be overridden.
            result["lifecycle"] = {
                **_mapping(result.get("lifecycle")),
                "postStart": container["lifecycle"]["postStart"],
            }
        return result

    def _variables(self, originals: probes.Originals) -> dict[str, str]:
        settings = self._settings
        mesh = settings.mesh_id or settings.trust_domain
        apps = self._spec["containers"]
        ports = [port for each in apps for port in each.get("ports") or ()]
        variables = {
            "ISTIO_META_APP_CONTAINERS": ",".join(each["name"] for each in apps),
            "ISTIO_META_CLUSTER_ID": settings.cluster_id,
            "ISTIO_META_INTERCEPTION_MODE": redirect.REDIRECT if self._wishes.redirected else redirect.NONE,
            "ISTIO_META_MESH_ID": mesh,
            "ISTIO_META_OWNER": self._owner.path(self._namespace),
            "ISTIO_META_POD_PORTS": msgspec.json.encode(ports, order="sorted").decode(),
            "ISTIO_META_WORKLOAD_NAME": self._owner.name,
            "TRUST_DOMAIN": settings.trust_domain,
        }
        if settings.network:
            variables["ISTIO_META_NETWORK"] = settings.network
        if originals:
            variables[containers.PROBERS] = probes.encode(originals)
        # The pod's own variables may refer to other variables, as in Istio.
        return {name: for_kubelet(value) for name, value in variables.items()} | dict(self._wishes.environment)

    def _sidecar(self, checks: Any, variables: Mapping[str, str]) -> InjectedSidecar:
        wishes, settings = self._wishes, self._settings
        prefix = "ISTIO_META_"
        metadata = {
            "INSTANCE_IPS": variable("INSTANCE_IPS"),
            "INTERCEPTION_MODE": variables["ISTIO_META_INTERCEPTION_MODE"],
            "NETWORK": settings.network,
            "NODE_NAME": variable("ISTIO_META_NODE_NAME"),
            "OWNER": self._owner.path(self._namespace),
        }
        metadata |= {
            name.removeprefix(prefix): value for name, value in wishes.environment.items() if name.startswith(prefix)
        }
        return InjectedSidecar(
            kind=gateway.ROUTER if self._gateway else _SIDECAR,
            name=variable("POD_NAME"),
            namespace=variable("POD_NAMESPACE"),
            address=variable("INSTANCE_IP"),
            workload=self._owner.name,
            service_account=variable("SERVICE_ACCOUNT"),
            labels=dict(sorted(self._metadata["labels"].items())),
            containers=tuple(each["name"] for each in self._spec["containers"]),
            metadata=dict(sorted(metadata.items())),
            dns_domain=f"{variable('POD_NAMESPACE')}.svc.{settings.cluster_domain}",
            cluster_id=settings.cluster_id,
            mesh_id=settings.mesh_id or settings.trust_domain,
            sds_socket=f"{IDENTITY_MOUNT}/{SDS_SOCKET}",
            xds_socket=f"{IDENTITY_MOUNT}/{XDS_SOCKET}",
            control=settings.control,
            status_port=wishes.status_port,
            probes=checks,
            ipv6="IPv6" in settings.ip_families,
            log_level=wishes.log_level,
            component_log_level=wishes.component_log_level,
            concurrency=wishes.concurrency,
            drain_seconds=wishes.drain_seconds,
            memory=gateway.memory(wishes, self._stripped.overrides.get(containers.PROXY, {})) if self._gateway else 0,
        )

    def _place(self, ours: list[dict[str, Any]]) -> None:
        """Add weft's containers `ours` to the pod. A native sidecar and its init container come before the pod's own
        init containers, so that the pod's init containers also use the mesh. With an ordinary sidecar, the init
        container that redirects traffic comes after the pod's own init containers: the proxy does not run yet, so
        they must reach the network directly."""
        apps, init = self._spec["containers"], self._spec.get("initContainers", [])
        proxy = [each for each in ours if each["name"] == containers.PROXY]
        others = [each for each in ours if each["name"] != containers.PROXY]
        if self._native:
            init = [*others, *proxy, *init]
        else:
            init = [*init, *others]
            apps = [*proxy, *apps] if self._wishes.hold else [*apps, *proxy]
        self._spec["containers"] = apps
        if init or "initContainers" in self._spec:
            self._spec["initContainers"] = init

    def _own_volumes(self) -> list[dict[str, Any]]:
        return [{"name": IDENTITY_VOLUME, "csi": {"driver": self._settings.driver, "readOnly": True}}]

    def _add_volumes(self, volumes: list[dict[str, Any]]) -> None:
        present = self._spec.setdefault("volumes", [])
        taken = {each.get("name"): each for each in present if isinstance(each, dict)}
        for volume in volumes:
            if volume["name"] not in taken:
                present.append(volume)
        existing = taken.get(IDENTITY_VOLUME)
        if existing is not None and "csi" in existing and self._stripped.status is not None:
            existing.update(self._own_volumes()[0])  # the driver of an older revision may be removed
        elif existing is not None and "csi" not in existing:
            where = Where(object=self._named, field="spec.volumes")
            hint = "rename that volume"
            raise InjectionRefused(
                [Problem(where, f"the volume name {IDENTITY_VOLUME} is reserved for the proxy", hint)]
            )

    def _add_pull_secrets(self) -> None:
        present = self._spec.get("imagePullSecrets") or []
        missing = [each for each in self._settings.image_pull_secrets if {"name": each} not in present]
        if missing:
            self._spec["imagePullSecrets"] = [*present, *({"name": each} for each in missing)]

    def _annotate(self, ours: list[dict[str, Any]], volumes: list[dict[str, Any]]) -> None:
        annotations = self._metadata.setdefault("annotations", {})
        if self._stripped.status is None and self._stripped.overrides:
            annotations[OVERRIDES] = _encoded_overrides(self._stripped.overrides, native=self._native)
        apps = [each["name"] for each in self._spec["containers"] if each not in ours]
        for name in _DEFAULT_CONTAINER:
            annotations.setdefault(name, apps[0] if apps else containers.PROXY)
        if self._wishes.prometheus and self._wishes.status_port and not any(map(_PROMETHEUS.fullmatch, annotations)):
            annotations["prometheus.io/scrape"] = "true"
            annotations["prometheus.io/port"] = str(self._wishes.status_port)
            annotations["prometheus.io/path"] = "/stats/prometheus"
        for name, value in self._settings.injected_annotations.items():
            annotations.setdefault(name, value)
        annotations[REVISION_LABEL] = self._settings.revision
        annotations[STATUS] = self._status(ours, volumes)

    def _status(self, ours: list[dict[str, Any]], volumes: list[dict[str, Any]]) -> str:
        init = [each["name"] for each in ours if self._native or each["name"] != containers.PROXY]
        running = [each["name"] for each in ours if each["name"] not in init]
        status = InjectionStatus(
            init_containers=tuple(init) or None,
            containers=tuple(running) or None,
            volumes=tuple(each["name"] for each in volumes),
            image_pull_secrets=self._settings.image_pull_secrets or None,
            revision=self._settings.revision,
        )
        return msgspec.json.encode(status).decode()

    def _check_user(self) -> None:
        context = self._stripped.overrides.get(containers.PROXY, {}).get("securityContext")
        uid = context.get("runAsUser", PROXY_UID) if isinstance(context, dict) else PROXY_UID
        if uid != PROXY_UID:
            where = Where(object=self._named, field="spec.containers[istio-proxy].securityContext.runAsUser")
            what = f"the proxy cannot run as user {uid}: its sockets and the redirect are for user {PROXY_UID} only"
            raise InjectionRefused([Problem(where, what, "remove runAsUser")])

    def _check_lengths(self, proxy: Mapping[str, Any]) -> None:
        """Raise InjectionRefused if an argument or variable of the container `proxy` is too long for the kernel, so
        that the pod's author sees the reason."""
        variables = [f"{each['name']}={each.get('value', '')}" for each in proxy["env"]]
        longest = max(len(each.encode()) for each in (*proxy["args"], *variables))
        if longest > _LONGEST_TEXT:
            what = f"the pod's labels, ports and probes make a proxy argument or variable {longest} bytes long"
            hint = f"the kernel's limit is {_LONGEST_TEXT} bytes: use fewer labels, ports or probes"
            raise InjectionRefused([Problem(Where(object=self._named, field="spec"), what, hint)])

    def _warnings(self) -> list[str]:
        warnings = []
        for container in [*self._spec["containers"], *self._spec.get("initContainers", ())]:
            if self._runs_as(container, "runAsUser") == PROXY_UID:
                who = f"user {PROXY_UID}"
            elif self._runs_as(container, "runAsGroup") == PROXY_GID:
                who = f"group {PROXY_GID}"
            else:
                continue
            warnings.append(
                f"container {container['name']} runs as {who}, as the proxy does: its traffic is not redirected"
            )
        for container in self._spec["containers"]:
            for port in container.get("ports") or ():
                number = port.get("containerPort") if isinstance(port, dict) else None
                if number in {*TAKEN_PORTS, ADMIN_PORT, self._wishes.status_port}:
                    warnings.append(f"container {container['name']} has port {number}, which the proxy uses")
        return [*warnings, *self._hook_warnings()]

    def _hook_warnings(self) -> list[str]:
        overrides = _mapping(self._stripped.overrides.get(containers.PROXY, {}).get("lifecycle"))
        if not self._by_hook or overrides.get("postStart") is None:
            return []
        return [
            "lifecycle.postStart of istio-proxy is ignored: with redirectBy node, weft's hook requests the redirect"
        ]

    def _runs_as(self, container: Mapping[str, Any], field: str) -> Any:
        """Return the value of a securityContext field for a container: the container's own value, or else the pod's;
        None if neither sets it."""
        contexts = (container.get("securityContext"), self._spec.get("securityContext"))
        values = (each.get(field) for each in contexts if isinstance(each, dict))
        return next((each for each in values if each is not None), None)


def _with_own_variables(current: list[Any], fresh: list[dict[str, Any]]) -> list[Any]:
    """Return the list of variables `current` with weft's own variables updated to those in `fresh`: existing ones
    are replaced in place, new ones appended, obsolete ones removed."""
    wanted = {entry["name"]: entry for entry in fresh if entry["name"] in containers.OWN_VARIABLES}
    kept = []
    for entry in current:
        name = entry.get("name") if isinstance(entry, dict) else None
        if name in containers.OWN_VARIABLES:
            entry = wanted.pop(name, None)
        if entry is not None:
            kept.append(entry)
    return kept + list(wanted.values())


def _encoded_overrides(by_name: Mapping[str, dict[str, Any]], *, native: bool) -> str:
    init = [each for name, each in by_name.items() if native or name != containers.PROXY]
    running = [each for each in by_name.values() if each not in init]
    document = {"containers": running, "initContainers": init}
    return msgspec.json.encode({field: each for field, each in document.items() if each}, order="sorted").decode()


def _name(pod: Mapping[str, Any], namespace: str) -> str:
    metadata = pod.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return f"Pod {namespace}/{metadata.get('name') or metadata.get('generateName') or '?'}"


def _check_shape(pod: Mapping[str, Any], named: str) -> None:
    """Raise InjectionRefused if a field that injection relies on has the wrong type, or if the pod has no container for
    the proxy to serve. `named`: the pod's name for messages."""

    def refuse(field: str, what: str) -> None:
        raise InjectionRefused([Problem(Where(object=named, field=field), what)])

    flaw = flaw_of_pod(pod, named)
    if flaw is not None:
        raise InjectionRefused([flaw])
    annotations = pod["metadata"].get("annotations") or {}
    if sum(len(name) + len(value) for name, value in annotations.items()) > _MOST_ANNOTATIONS:
        refuse(
            "metadata.annotations",
            f"the annotations are longer than {_MOST_ANNOTATIONS} bytes, the limit of Kubernetes",
        )
    names = [each["name"] for each in pod["spec"]["containers"]]
    if gateway.is_gateway(annotations, named):
        if containers.PROXY not in names:
            refuse("spec.containers", "a gateway needs a container named istio-proxy, with the image auto")
    elif all(name in OURS for name in names):
        refuse("spec.containers", "the pod has no application container")


def _strings(values: Any) -> Mapping[str, str]:
    return values if isinstance(values, Mapping) else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
