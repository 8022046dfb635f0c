"""Which replica of a cluster is queried, and with which credentials: tokens and rejections of a real API server. A real
replica responds in tests/on_cluster/test_proxy_status.py."""

import asyncio

import click
import jwt
import msgspec
import pytest

from weft.cli.reach import control_pods
from weft.cli.reach.kubernetes import ClusterReach
from weft.kube.client import Client
from weft.kube.config import load


def pod(name, phase="Running", label="istiod", since="2026-11-16T14:03:00Z"):
    running = {"name": "control", "ready": True, "restartCount": 0, "image": "x", "imageID": "x"}
    statuses = [running | {"state": {"running": {"startedAt": since}}}] if phase == "Running" else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": label}},
        "spec": {"containers": [{"name": "control", "image": "x"}]},
        "status": {"phase": phase, "startTime": "2026-11-15T00:00:00Z", "containerStatuses": statuses},
    }


@pytest.fixture(scope="module")
def system(api_server):
    name = api_server.make_namespace("system")
    api_server.make_default_account(name)
    young = pod("a-young-one", since="2026-11-16T14:04:00Z")
    for each in (pod("two"), young, pod("one"), pod("later", "Pending"), pod("other", label="web")):
        path = f"/api/v1/namespaces/{name}/pods"
        api_server.request("POST", path, {key: value for key, value in each.items() if key != "status"})
        path = f"{path}/{each['metadata']['name']}/status"
        api_server.request("PATCH", path, {"status": each["status"]}, kind="application/merge-patch+json")
    return name


def run(api_server, ask):
    async def asked():
        async with Client(load(api_server.kubeconfig)) as client:
            return await ask(client)

    return asyncio.run(asked())


def test_only_running_replicas_are_listed_and_the_longest_running_is_first(api_server, system):
    found = run(api_server, lambda client: control_pods.replicas(client, system))
    assert found == ["one", "two", "a-young-one"]


def test_a_restarted_replica_comes_after_a_younger_pod():
    again, young = pod("again", since="2026-11-16T15:00:00Z"), pod("young", since="2026-11-16T14:00:00Z")
    young["status"]["startTime"] = "2026-11-16T13:59:00Z"
    assert sorted((again, young), key=control_pods._since) == [young, again]
    silent = {"metadata": {"name": "silent"}, "status": {"startTime": "2026-11-16T14:30:00Z"}}
    assert sorted((again, silent, young), key=control_pods._since) == [young, silent, again]


def test_without_a_running_replica_the_error_has_the_next_step(api_server, capsys):
    with pytest.raises(click.exceptions.Exit):
        run(api_server, lambda client: control_pods.replicas(client, "default"))
    said = capsys.readouterr().err
    assert "no control plane runs in namespace default" in said and "--istio-namespace" in said


def test_the_token_is_of_an_account_there_for_its_audience_and_short_lived(api_server, system):
    token = run(api_server, lambda client: control_pods.token(client, system))
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["sub"] == f"system:serviceaccount:{system}:default" and claims["aud"] == ["istio-ca"]
    assert claims["exp"] - claims["iat"] <= 700


def test_a_user_without_the_permission_to_create_a_token_gets_its_name(api_server, system, capsys):
    async def as_nobody(client):
        nobody = msgspec.structs.replace(client.connection, impersonate=(("Impersonate-User", "nobody"),))
        async with Client(nobody) as other:
            await control_pods.token(other, system)

    with pytest.raises(click.exceptions.Exit):
        run(api_server, as_nobody)
    assert "create serviceaccounts/token" in capsys.readouterr().err


def test_a_replica_that_cannot_be_reached_is_an_error_and_not_silence(api_server, system):
    reached = ClusterReach(api_server.kubeconfig, None, system)
    try:
        with pytest.raises(Exception, match=r"(?i)pod|node|host"):
            reached.ask("syncz")
    finally:
        reached.close()
