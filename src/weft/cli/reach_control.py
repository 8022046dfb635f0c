"""Asking a cluster's control plane what it knows: its replicas are found by the API server and asked through it, on
their monitoring port, with a token of their own namespace that is made for this. Who may make one may read it all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.cli.output import fail
from weft.install.names import MONITORING_PORT, REVISION, Names
from weft.kube import port_forward, resource
from weft.kube.client import Client
from weft.kube.error import ApiError

AUDIENCE = "istio-ca"  # what the control plane wants a token to be for
ACCOUNT = "default"  # every namespace has it, and it may do nothing else
_TOKEN_SECONDS = 600  # the shortest that the API server gives


async def replicas(client: Client, names: Names) -> list[str]:
    """The pods of the control plane that are ready, who leads first; at least one."""
    labels = f"app=istiod,{REVISION}={names.revision}"
    listed = await client.list(resource.PODS, dict, namespace=names.namespace, labels=labels)
    ready = sorted(str(pod["metadata"]["name"]) for pod in listed.items if is_ready(pod))
    if not ready:
        installed = (
            "is it installed? weft install" if not listed.items else "see why: kubectl describe pods -l app=istiod"
        )
        fail(f"no control plane of revision {names.revision} is ready in {names.namespace}", installed)
    leader = await _leader(client, names)
    return sorted(ready, key=lambda name: name != leader)


async def token(client: Client, namespace: str) -> str:
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_SECONDS},
    }
    try:
        made = await client.create(
            resource.SERVICE_ACCOUNTS, wanted, namespace=namespace, name=ACCOUNT, subresource="token"
        )
    except ApiError as error:
        if not error.forbidden:
            raise
        hint = f"it takes the right to create serviceaccounts/token in {namespace}"
        fail(f"you may not ask the control plane: {error.message or error}", hint)
    return str(made["status"]["token"])


async def ask(
    client: Client, namespace: str, pod: str, bearer: str, path: str, query: Mapping[str, str] | None = None
) -> bytes:
    headers = {"Authorization": f"Bearer {bearer}"}
    answer = await port_forward.ask(client, namespace, pod, MONITORING_PORT, path, query=query, headers=headers)
    if answer.status != 200:
        said = answer.body[:300].decode(errors="replace").strip()
        fail(f"{pod}.{namespace} answered {path} with {answer.status}: {said}")
    return answer.body


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return not pod["metadata"].get("deletionTimestamp") and any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in conditions
    )


async def _leader(client: Client, names: Names) -> str:
    """Nobody, where it is not known; any replica answers."""
    try:
        lease = await client.get(resource.LEASES, names.lease, namespace=names.namespace)
    except ApiError:
        return ""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
