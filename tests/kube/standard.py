"""The Gateway API on a real API server: the standard's own definitions, and objects of them."""

from contextlib import contextmanager

from tools.kube.api_server import RequestFailed
from tools.kube.process import wait_for

from kube.cluster import MERGE
from tools.kube import gateway_api

GROUP = "gateway.networking.k8s.io"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PLURALS = {"Gateway": "gateways", "HTTPRoute": "httproutes", "GatewayClass": "gatewayclasses",
            "BackendTLSPolicy": "backendtlspolicies", "ListenerSet": "listenersets"}  # fmt: skip


@contextmanager
def served(server):
    """A server that knows the kinds; none of them is left at the end."""
    names = []
    for manifest in gateway_api.definitions():
        names.append(manifest["metadata"]["name"])
        try:
            server.request("POST", _CRDS, manifest)
        except RequestFailed as error:
            if error.status != 409:
                raise
    for name in names:
        wait_for(lambda name=name: _established(server, name), f"definition {name} to be ready", timeout=60)
    yield server
    for name in names:
        server.request("DELETE", f"{_CRDS}/{name}")
    for name in names:
        wait_for(lambda name=name: _gone(server, name), f"definition {name} to be gone", timeout=60)


def url(kind, namespace, name="", below=""):
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/v1{place}/{_PLURALS[kind]}{f'/{name}' if name else ''}{below}"


def put(server, kind, namespace, name, spec, **metadata):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}
    try:
        server.request("POST", url(kind, namespace), body)
    except RequestFailed as error:
        if error.status != 409:
            raise
        server.request("PATCH", url(kind, namespace, name), {"metadata": metadata, "spec": spec}, kind=MERGE)


def _established(server, name):
    found = server.request("GET", f"{_CRDS}/{name}").get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


def _gone(server, name):
    try:
        server.request("GET", f"{_CRDS}/{name}")
    except RequestFailed as error:
        return error.status == 404
    return False
