"""Answers an AdmissionReview about one pod: with the patch, without a patch, or with a denial and its reason.

The settings may be replaced at any time; a review uses the settings that were current when it arrived.
"""

from __future__ import annotations

import logging

from weft.inject.annotations import InjectionRefused
from weft.inject.decision import required
from weft.inject.patch import inject, patch
from weft.inject.review import AdmissionRequest, AdmissionResponse
from weft.inject.settings import InjectionSettings
from weft.inject.sidecar import Renderer

_log = logging.getLogger("weft.inject")


class Injector:
    def __init__(
        self, settings: InjectionSettings, render: Renderer, *, native_sidecars: bool, sleep_hooks: bool = True
    ) -> None:
        """`render` returns Envoy's arguments for a sidecar. `native_sidecars` and `sleep_hooks`: whether the cluster
        supports native sidecars (Kubernetes 1.29) and lifecycle hooks that sleep (1.30)."""
        self.settings = settings
        self.native_sidecars = native_sidecars
        self.sleep_hooks = sleep_hooks
        self._render = render

    def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        """Return the response for one request. If the pod cannot be injected because of a mistake in it, the
        response is a denial with the reason; no exception is raised."""
        pod = request.object
        if pod is None or not _creates_a_pod(request):
            return AdmissionResponse(allowed=True)
        metadata = pod.get("metadata")
        declared = metadata.get("namespace") if isinstance(metadata, dict) else None
        namespace = request.namespace or (declared if isinstance(declared, str) else "")
        decision = required(pod, namespace, self.settings)
        if not decision.inject:
            _log.info("pod %s in namespace %s gets no sidecar: %s", _name(pod), namespace, decision.reason)
            warning = f"Pod {namespace}/{_name(pod)} gets no sidecar: {decision.reason}"
            return AdmissionResponse(allowed=True, warnings=(warning,) if decision.doubtful else ())
        try:
            injected = inject(
                pod,
                namespace,
                self.settings,
                self._render,
                native_sidecars=self.native_sidecars,
                sleep_hooks=self.sleep_hooks,
            )
        except InjectionRefused as refusal:
            _log.warning("%s", refusal)
            lines = [str(problem) for problem in refusal.problems]
            return AdmissionResponse(allowed=False, message="cannot inject a sidecar: " + "; ".join(lines), code=422)
        return AdmissionResponse(allowed=True, patch=tuple(patch(pod, injected)), warnings=injected.warnings)


def _creates_a_pod(request: AdmissionRequest) -> bool:
    # `istioctl kube-inject` sends a pod with the kind of the request itself, and without an operation.
    return (request.kind.kind, request.operation) in (("Pod", "CREATE"), ("AdmissionRequest", ""))


def has_native_sidecars(major: str, minor: str) -> bool:
    """Return whether an API server with this version (`major` and `minor` of its /version) has native sidecars. Vendors
    use minor versions such as `29+`."""
    return _version(major, minor) >= (1, 29)


def has_sleep_hooks(major: str, minor: str) -> bool:
    return _version(major, minor) >= (1, 30)


def _version(major: str, minor: str) -> tuple[int, int]:
    digits = "".join(each for each in minor if each.isascii() and each.isdigit())
    return (int(major) if major.isascii() and major.isdigit() else 0, int(digits or 0))


def _name(pod: dict[str, object]) -> str:
    metadata = pod.get("metadata")
    name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
    return str(name or "?")
