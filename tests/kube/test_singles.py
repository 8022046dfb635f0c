"""Secrets and ConfigMaps by their names, from a real API server."""

import asyncio
import base64
from contextlib import asynccontextmanager

from kube.following import QUICK
from weft.kube import singles as module
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.kube.resource import CONFIG_MAPS, SECRETS
from weft.kube.singles import BACKEND_AUTHORITIES, GATEWAY_SECRETS, Singles


def secret(namespace, name, text):
    data = {"tls.crt": base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


@asynccontextmanager
async def watching(client, sort=GATEWAY_SECRETS):
    made = Singles(client, sort, QUICK)
    try:
        yield made
    finally:
        await made.close()


async def read(secrets):
    """By name: what each holds now, or None."""
    async with asyncio.timeout(30):
        changes = await secrets.changes()
    return {
        change.key.name: base64.b64decode(change.document.body["data"]["tls.crt"]).decode() if change.document else None
        for change in changes
    }


async def until(secrets, wanted):
    found = {}
    while found != wanted:
        found |= await read(secrets)
    return found


async def test_only_changes_of_wanted_objects_are_returned(client, namespace):
    for name in ("shown", "other"):
        await client.create(SECRETS, secret(namespace, name, "one"), namespace=namespace)
    async with watching(client) as secrets:
        secrets.want({(namespace, "shown"), (namespace, "later")})
        assert await until(secrets, {"shown": "one"})
        await client.create(SECRETS, secret(namespace, "later", "two"), namespace=namespace)
        await until(secrets, {"later": "two"})
        await client.apply(secret(namespace, "shown", "three"), manager="test", force=True)
        await until(secrets, {"shown": "three"})
        await client.delete(SECRETS, "later", namespace=namespace)
        await until(secrets, {"later": None})
        secrets.want({(namespace, "later")})
        await until(secrets, {"shown": None})  # forgotten, though it is there


async def test_a_forbidden_object_is_a_problem_with_a_hint(api_server, client, namespace):
    await client.create(SECRETS, secret(namespace, "shown", "one"), namespace=namespace)
    async with limited(api_server, namespace) as stranger, watching(stranger) as secrets:
        secrets.want({(namespace, "shown"), ("kube-system", "hidden")})
        found = {}
        while not (secrets.problems and found):
            found |= await read(secrets)
        (problem,) = secrets.problems
        assert found == {"shown": "one"}
        assert "Secret kube-system/hidden" in str(problem)
        assert "--set gateways.secretsIn=[kube-system]" in problem.hint
        secrets.want({(namespace, "shown")})
        assert secrets.problems == ()


async def test_config_maps_are_watched_by_name_too(api_server, client, namespace):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": "one"}}
    for name in ("roots", "other"):
        await client.create(CONFIG_MAPS, {**body, "metadata": {"name": name}}, namespace=namespace)
    async with watching(client, BACKEND_AUTHORITIES) as singles:
        singles.want({(namespace, "roots")})
        async with asyncio.timeout(30):
            (change,) = await singles.changes()
        assert (str(change.key), change.document.body["data"]) == (f"ConfigMap {namespace}/roots", {"ca.crt": "one"})
    async with limited(api_server, namespace) as stranger, watching(stranger, BACKEND_AUTHORITIES) as singles:
        singles.want({(namespace, "roots")})
        async with asyncio.timeout(30):
            while not singles.problems:
                await singles.changes()
        assert "which a BackendTLSPolicy names" in singles.problems[0].what
        assert f"--set gateways.configMapsIn=[{namespace}]" in singles.problems[0].hint


@asynccontextmanager
async def limited(api_server, namespace):
    """Who may read the Secrets of one namespace, as weft's own account with `gateways.secretsIn`."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}
    api_server.request("POST", f"{rbac}/roles", {"metadata": {"name": "secrets"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "secrets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "secrets"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    api_server.request("POST", f"{rbac}/rolebindings", binding)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    token = api_server.request("POST", path, {"spec": {"audiences": []}})["status"]["token"]
    client = Client(ApiConnection(server=api_server.server, ca_file=str(api_server.ca), token=token))
    try:
        yield client
    finally:
        await client.close()


async def test_the_number_of_watches_is_limited(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(module, "reflect", silent)
    secrets = Singles(None, GATEWAY_SECRETS)
    secrets.want(("shop", name) for name in "cbca")
    assert sorted(secrets._watches) == [("shop", "b"), ("shop", "c")]  # in the order in which they are named
    await secrets.close()


async def silent(*_, **__):
    await asyncio.Event().wait()
    yield ()


async def test_beyond_the_limit_objects_that_are_already_watched_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(module, "reflect", silent)
    async with watching(None) as secrets:
        secrets.want({("shop", "y"), ("shop", "z")})
        secrets.want({("shop", "y"), ("shop", "z"), ("evil", "a"), ("evil", "b")})
        assert set(secrets._watches) == {("shop", "y"), ("shop", "z")}
        secrets.want([("evil", "a"), ("evil", "b"), ("shop", "z")])
        assert set(secrets._watches) == {("shop", "z"), ("evil", "a")}
