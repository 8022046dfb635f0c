"""Asking the control plane of a cluster: its replicas are found by their label, reached through the API server, and
shown a token of an account of their own namespace, which is what they answer to.

Rule: the token is for this, lives for ten minutes, and is nowhere but in memory. Who may get one may ask.
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
_SECONDS = 600  # the shortest that Kubernetes gives


async def replicas(client: Client, namespace: str) -> list[str]:
    """Those that run; at least one. First the one that has run longest: what has changed in the mesh, each remembers
    from its own start on."""
    listed = await client.list(PODS, dict, namespace=namespace, labels=_LABELS)
    running = [
        pod
        for pod in listed.items
        if pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]
    if not running:
        fail(
            f"no control plane runs in namespace {namespace}",
            "where it is: --istio-namespace NAMESPACE; to install one: weft install",
        )
    return [str(pod["metadata"]["name"]) for pod in sorted(running, key=_since)]


def _since(pod: Mapping[str, Any]) -> tuple[str, str]:
    """When its program was started, perhaps later than its pod. Kubernetes' times sort as they are written."""
    status = pod.get("status", {})
    states = (each.get("state") or {} for each in status.get("containerStatuses") or ())
    begun = [str(each["running"].get("startedAt") or "") for each in states if each.get("running")]
    return max(begun, default=str(status.get("startTime") or "")), str(pod["metadata"]["name"])


async def token(client: Client, namespace: str) -> str:
    spec = {"audiences": [AUDIENCE], "expirationSeconds": _SECONDS}
    manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    try:
        made = await client.create(SERVICE_ACCOUNTS, manifest, namespace=namespace, name=ACCOUNT, subresource="token")
    except ApiError as error:
        if not error.forbidden:
            raise
        fail(
            f"you may not query the control plane: {error.message or error}",
            f"this needs the permission to create serviceaccounts/token in {namespace}; "
            f"see: kubectl auth can-i create serviceaccounts/token -n {namespace}",
        )
    return str(made["status"]["token"])


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
