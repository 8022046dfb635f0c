from __future__ import annotations

import asyncio
import base64
import contextlib
import re

import pytest

from cluster.kubernetes import unique
from eventually import eventually
from weft.ca.authority import Authority
from weft.cluster.published_roots import KEY, PublishedRoots
from weft.install.names import InstallationNames
from weft.kube.error import ApiError
from weft.kube.resource import CONFIG_MAPS, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from weft.model.proxy import ROOT_CONFIG_MAP


@pytest.fixture
async def names(client):
    """Create a mutating and a validating configuration, each with two webhooks that match no object, and yield the
    names of the installation."""
    made = InstallationNames(unique("rev"), "istio-system")
    for resource, name in webhooks_of(made).items():
        webhooks = [
            {
                "name": f"{each}.weft.dev",
                "clientConfig": {"service": {"name": "istiod", "namespace": "istio-system", "path": "/inject"}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [
                    {
                        "apiGroups": ["nothing.weft.dev"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["x"],
                    }
                ],
            }
            for each in ("one", "two")
        ]
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await client.create(resource, manifest | {"webhooks": webhooks})
    yield made
    for resource, name in webhooks_of(made).items():
        await client.delete(resource, name)


def webhooks_of(names):
    return {MUTATING_WEBHOOKS: names.injector, VALIDATING_WEBHOOKS: names.validator}


@contextlib.asynccontextmanager
async def published(client, authority, names):
    roots = PublishedRoots(client, authority, names)
    running = asyncio.create_task(roots.run())
    try:
        yield roots
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def becomes(look, wanted):
    await eventually(look, lambda value: value == wanted, every=0.05, retry=ApiError)


async def bundle_in(client, namespace):
    return (await client.get(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=namespace))["data"][KEY]


async def bundles_of(client, names):
    found = set()
    for resource, name in webhooks_of(names).items():
        for webhook in (await client.get(resource, name))["webhooks"]:
            found.add(base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode())
    return found


async def test_every_namespace_and_every_webhook_has_the_roots_and_each_new_one_gets_them(client, api_server, names):
    authority = Authority.in_memory("cluster.local")
    before, after = api_server.make_namespace(unique("before")), unique("after")
    async with published(client, authority, names):
        roots = "".join(authority.bundle())
        await becomes(lambda: bundle_in(client, before), roots)
        await becomes(lambda: bundles_of(client, names), {roots})
        api_server.make_namespace(after)
        await becomes(lambda: bundle_in(client, after), roots)
        authority.rotate()
        roots = "".join(authority.bundle())
        await becomes(lambda: bundle_in(client, before), roots)
        await becomes(lambda: bundles_of(client, names), {roots})


async def test_overwritten_roots_are_restored_and_other_keys_stay(client, api_server, names):
    authority = Authority.in_memory("cluster.local")
    namespace = api_server.make_namespace(unique("mended"))
    async with published(client, authority, names):
        roots = "".join(authority.bundle())
        await becomes(lambda: bundle_in(client, namespace), roots)
        patch = {"metadata": {"labels": {"theirs": "yes"}}, "data": {KEY: "nonsense", "other": "kept"}}
        await client.patch(CONFIG_MAPS, ROOT_CONFIG_MAP, patch, namespace=namespace, manager="somebody")
        await becomes(lambda: bundle_in(client, namespace), roots)
        found = await client.get(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=namespace)
        assert found["data"]["other"] == "kept" and found["metadata"]["labels"]["theirs"] == "yes"
        await client.delete(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=namespace)
        await becomes(lambda: bundle_in(client, namespace), roots)


async def test_nothing_is_written_twice(client, api_server, names):
    authority = Authority.in_memory("cluster.local")
    namespace = api_server.make_namespace(unique("calm"))
    async with published(client, authority, names) as roots:
        await becomes(lambda: bundle_in(client, namespace), "".join(authority.bundle()))
        await eventually(lambda: not roots._due.is_set())
        version = (await client.get(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=namespace))["metadata"]["resourceVersion"]
        roots._due.set()
        api_server.make_namespace(another := unique("another"))
        await becomes(lambda: bundle_in(client, another), "".join(authority.bundle()))
        found = await client.get(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=namespace)
        assert found["metadata"]["resourceVersion"] == version


async def test_a_terminating_namespace_is_left_alone(client, api_server, names, caplog):
    authority = Authority.in_memory("cluster.local")
    namespace = api_server.make_namespace(unique("going"))
    stays = api_server.make_namespace(unique("stays"))
    # Without controllers a deleted namespace stays Terminating.
    await client.delete(NAMESPACES, namespace)
    async with published(client, authority, names):
        await becomes(lambda: bundle_in(client, stays), "".join(authority.bundle()))
        with pytest.raises(ApiError, match="404"):
            await bundle_in(client, namespace)
    assert "cannot be published" not in caplog.text


async def test_control_planes_with_other_roots_share_the_config_map(client, api_server, names):
    """As with a second revision that has its own CA: without claims, each would remove the roots that the other's
    agents trust."""
    namespace = api_server.make_namespace(unique("shared"))
    other = InstallationNames("other", "elsewhere")
    ours, theirs = Authority.in_memory("cluster.local"), Authority.in_memory("cluster.local")

    async def found():
        return set(CERTIFICATE.findall(await bundle_in(client, namespace)))

    async with published(client, ours, names), published(client, theirs, other):
        await becomes(found, {*roots_of(ours), *roots_of(theirs)})
        theirs.rotate()
        await becomes(found, {*roots_of(ours), *roots_of(theirs)})
        assert len(roots_of(theirs)) == 2
    theirs = Authority.in_memory("cluster.local")  # another CA; the roots of the one before are removed
    async with published(client, ours, names), published(client, theirs, other):
        await becomes(found, {*roots_of(ours), *roots_of(theirs)})
    async with published(client, ours, names):  # the other control plane is uninstalled
        patch = {"metadata": {"annotations": {other.roots_annotation: None}}}
        await client.patch(CONFIG_MAPS, ROOT_CONFIG_MAP, patch, namespace=namespace, manager="somebody")
        await becomes(found, set(roots_of(ours)))


CERTIFICATE = re.compile(r"-----BEGIN.*?END CERTIFICATE-----", re.DOTALL)


def roots_of(authority):
    return CERTIFICATE.findall("".join(authority.bundle()))


async def test_roots_overwritten_by_another_control_plane_are_rewritten_at_a_limited_rate(
    client, api_server, names, monkeypatch, caplog
):
    """As Istio's own control plane does, which does not share the ConfigMap."""
    namespace = api_server.make_namespace(unique("contested"))
    ours, theirs = Authority.in_memory("cluster.local"), "".join(Authority.in_memory("cluster.local").bundle())
    writes = []
    put = PublishedRoots._put

    async def counted(self, where, wanted):
        writes.append(where)
        await put(self, where, wanted)

    monkeypatch.setattr(PublishedRoots, "_put", counted)

    async def stranger():
        await becomes(lambda: bundle_in(client, namespace), "".join(ours.bundle()))
        while True:
            if await bundle_in(client, namespace) != theirs:
                await client.patch(CONFIG_MAPS, ROOT_CONFIG_MAP, {"data": {KEY: theirs}}, namespace=namespace)
            await asyncio.sleep(0.01)

    async with published(client, ours, names):
        fighting = asyncio.create_task(stranger())
        told = f"ConfigMap {namespace}/{ROOT_CONFIG_MAP} is overwritten with other roots again and again"
        await eventually(lambda: told in caplog.text)
        fighting.cancel()
    assert writes.count(namespace) == 5
