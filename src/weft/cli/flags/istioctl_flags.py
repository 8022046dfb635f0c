"""Options of istioctl that weft does not have, and for each the hint what to type instead."""

from __future__ import annotations

_ASKED = "weft finds the control plane itself; to choose another: --mesh NAME, --kubeconfig FILE, --context NAME"
_INJECTED = "weft reads all settings of the injector from one file: --settings FILE"
_BUILT_IN = "the manifests are part of weft: see weft manifest generate and weft manifest values"
_MESH_CONFIG = (
    "put the MeshConfig into the ConfigMap istio-system/istio, among the files; weft analyze takes --meshConfigFile"
)
_INSTEAD = {
    **dict.fromkeys(("--xds-address", "--xds-label", "--xds-port", "--xds-via-agents"), _ASKED),
    **dict.fromkeys(("--authority", "--cert-dir", "--insecure", "--plaintext"), _ASKED),
    **dict.fromkeys(("--injectConfigFile", "--injectConfigMapName", "--valuesFile", "--webhookConfig"), _INJECTED),
    **dict.fromkeys(("--meshConfigFile", "--meshConfigMapName"), _MESH_CONFIG),
    **dict.fromkeys(("--charts", "--manifests"), _BUILT_IN),
    "--proxy-admin-port": "leave it out: weft knows where a proxy's admin interface is",
    "--remote-contexts": "weft queries one cluster at a time; choose it with --context NAME",
    "--vklog": "leave it out: weft logs no requests to the API server",
}


def instead_of(option: str) -> str:
    """Return what to type instead of istioctl's `option`; empty if istioctl has no such option either."""
    return _INSTEAD.get(option.partition("=")[0], "")
