"""Which replicas of a control plane are asked, and with what, by a real API server; that they answer is proved in
tests/cluster/test_proxy_config.py."""

import asyncio
import base64
import json

import pytest
import typer

from weft.cli.reach_control import AUDIENCE, replicas, token
from weft.install.names import Names
from weft.kube.client import Client
from weft.kube.config import load

PATCH = "application/merge-patch+json"


@pytest.fixture(scope="module")
def names(api_server):
    """Three replicas, of which one is not ready, and one of another revision."""
    namespace = api_server.make_namespace("reach-control")
    api_server.make_default_account(namespace)
    for name, revision, ready in (
        ("one", "default", "True"),
        ("two", "default", "True"),
        ("three", "default", "False"),
        ("four", "canary", "True"),
    ):
        labels = {"app": "istiod", "istio.io/rev": revision}
        spec = {"containers": [{"name": "control", "image": "x"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        api_server.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}
        api_server.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", status, kind=PATCH)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "weft-leader"},
        "spec": {"holderIdentity": "two"},
    }
    api_server.request("POST", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)
    return Names("default", namespace)


def run(api_server, function, *arguments):
    async def asked():
        async with Client(load(api_server.kubeconfig)) as client:
            return await function(client, *arguments)

    return asyncio.run(asked())


def test_ready_replicas_of_the_revision_who_leads_first(api_server, names):
    assert run(api_server, replicas, names) == ["two", "one"]
    assert run(api_server, replicas, Names("canary", names.namespace)) == ["four"]


def test_where_none_is_ready_the_next_step_is_told(api_server, names, capsys):
    with pytest.raises(typer.Exit):
        run(api_server, replicas, Names("gone", names.namespace))
    told = capsys.readouterr().err
    assert "no control plane of revision gone is ready" in told and "weft install" in told


def test_a_token_is_for_the_control_plane_alone(api_server, names):
    made = run(api_server, token, names.namespace)
    claims = json.loads(base64.urlsafe_b64decode(made.split(".")[1] + "=="))
    assert claims["aud"] == [AUDIENCE]
    assert claims["sub"] == f"system:serviceaccount:{names.namespace}:default"
    assert claims["exp"] - claims["iat"] == 600
