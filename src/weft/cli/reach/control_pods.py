"""Queries the control plane of a cluster. The replicas are found by their label and reached by port-forward through the
API server. They require a token of a service account in their own namespace.

Rule: the token is created for these queries only, is valid for ten minutes, and is kept only in memory. A user who may
create such a token may query the control plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.cli.print.output import fail
from weft.kube import port_forward
from weft.kube.client import Client
from weft.kube.error import ApiError
from weft.kube.resource import PODS, SERVICE_ACCOUNTS

DEBUG_PORT = 15014
AUDIENCE = "istio-ca"
ACCOUNT = "default"
_LABELS = "app=istiod"
_SECONDS = 600  # the shortest lifetime that Kubernetes allows


async def replicas(client: Client, namespace: str) -> list[str]:
    """Return the names of the running replicas. If there is none, the command ends. The replica that has run longest is
    first, because each replica records the mesh's history only since its own start."""
    listed = await client.list(PODS, dict, namespace=namespace, labels=_LABELS)
    running = [
        pod
        for pod in listed.items
        if pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]
    if not running:
        fail(
            f"no control plane runs in namespace {namespace}",
            "give its namespace: --istio-namespace NAMESPACE; to install one: weft install",
        )
    return [str(pod["metadata"]["name"]) for pod in sorted(running, key=_since)]


def _since(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return a sort key of a replica: the start time of its container, which may be later than that of its pod, and the
    pod's name. Kubernetes timestamps sort correctly as text."""
    status = pod.get("status", {})
    states = (each.get("state") or {} for each in status.get("containerStatuses") or ())
    begun = [str(each["running"].get("startedAt") or "") for each in states if each.get("running")]
    return max(begun, default=str(status.get("startTime") or "")), str(pod["metadata"]["name"])


async def token(client: Client, namespace: str) -> str:
    spec = {"audiences": [AUDIENCE], "expirationSeconds": _SECONDS}
    manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    try:
        created = await client.create(
            SERVICE_ACCOUNTS, manifest, namespace=namespace, name=ACCOUNT, subresource="token"
        )
    except ApiError as error:
        if not error.forbidden:
            raise
        fail(
            f"you may not query the control plane: {error.message or error}",
            f"this needs the permission to create serviceaccounts/token in {namespace}; "
            f"see: kubectl auth can-i create serviceaccounts/token -n {namespace}",
        )
    return str(created["status"]["token"])


async def debug_page(
    client: Client,
    namespace: str,
    pod: str,
    bearer: str,
    page: str,
    query: Mapping[str, str] | None,
    question: bytes = b"",
) -> port_forward.ForwardedResponse:
    headers = {"Authorization": f"Bearer {bearer}"}
    method = "POST" if question else "GET"
    try:
        return await port_forward.ask(
            client,
            namespace,
            pod,
            DEBUG_PORT,
            f"/debug/{page}",
            query=query,
            headers=headers,
            method=method,
            body=question,
        )
    except ApiError as error:
        if not error.forbidden:
            raise
        fail(
            f"you may not reach the control plane: {error.message or error}",
            f"this needs the permission to get and create pods/portforward in {namespace}",
        )
