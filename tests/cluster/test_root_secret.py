"""Replicas that share one root, with a real API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from datetime import timedelta

import pytest

from ca import making
from cluster.kubernetes import unique
from eventually import eventually
from weft.ca.authority import Terms
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase
from weft.cluster import root_secret
from weft.cluster.root_secret import NAME, ROTATE, STATE, RootSecret
from weft.kube.resource import CONFIG_MAPS, SECRETS

TERMS = Terms(lifetime=timedelta(seconds=2), skew=timedelta(0), propagation=timedelta(seconds=1))


@pytest.fixture
def namespace(api_server):
    return api_server.make_namespace(unique("roots"))


@contextlib.asynccontextmanager
async def replica(client, namespace):
    secret = RootSecret(client, namespace, "cluster.local", TERMS)
    authority = await secret.open()
    running = asyncio.create_task(secret.run())
    ticking = asyncio.create_task(authority.run())
    try:
        yield secret, authority
    finally:
        for task in (running, ticking):
            task.cancel()
        await asyncio.gather(running, ticking, return_exceptions=True)


async def test_replicas_that_start_at_once_make_one_root(client, namespace):
    opened = await asyncio.gather(*(RootSecret(client, namespace, "cluster.local", TERMS).open() for _ in range(5)))
    assert len({authority.bundle() for authority in opened}) == 1
    signed = opened[0].sign(making.csr(), making.WEB)
    assert making.verifies(signed.chain, opened[4].bundle())


async def test_the_root_outlives_every_replica(client, namespace):
    async with replica(client, namespace) as (_, first):
        before = first.bundle()
    async with replica(client, namespace) as (_, second):
        assert second.bundle() == before


async def test_a_rotation_requested_on_the_secret_reaches_all_replicas_in_all_its_phases(client, namespace):
    async with replica(client, namespace) as (leading, one), replica(client, namespace) as (_, other):
        one.lead()
        old = one.bundle()[0]
        other.sign(making.csr(), making.WEB)
        patch = {"metadata": {"annotations": {ROTATE: "1"}}}
        await client.patch(SECRETS, NAME, patch, namespace=namespace)

        def asked():
            leading.rotate_if_asked()
            return other.phase is not RotationPhase.STEADY

        await eventually(asked)
        assert len(other.bundle()) == 2
        await eventually(lambda: other.bundle()[0] != old and one.bundle() == other.bundle())
        signed = other.sign(making.csr(), making.WEB)
        assert making.verifies(signed.chain, other.bundle()[:1])
        secret = await client.get(SECRETS, NAME, namespace=namespace)
        assert ROTATE not in secret["metadata"].get("annotations", {})


async def test_nothing_decided_on_an_old_secret_is_written(client, namespace):
    async with replica(client, namespace) as (secret, authority):
        stale = (secret._states[secret._version], "1")
        secret._wanted = stale
        secret._wish.set()
        await eventually(lambda: secret._wanted is None)
        before = authority.bundle()
        found = await client.get(SECRETS, NAME, namespace=namespace)
        assert found["metadata"]["resourceVersion"] == secret._version
        assert authority.bundle() == before


async def test_a_secret_of_another_ca_is_not_touched(client, namespace):
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": {"ca-key.pem": "eA=="}}
    await client.create(SECRETS, manifest, namespace=namespace)
    with pytest.raises(AuthorityError, match="was not made by weft"):
        await RootSecret(client, namespace, "cluster.local", TERMS).open()


async def test_a_broken_or_deleted_secret_does_not_stop_signing(client, namespace, caplog):
    async with replica(client, namespace) as (_, authority):
        before = authority.bundle()
        broken = base64.b64encode(b"{}").decode()
        await client.patch(SECRETS, NAME, {"data": {STATE: broken}}, namespace=namespace)
        await eventually(lambda: "the changed root is not used" in caplog.text)
        await client.delete(SECRETS, NAME, namespace=namespace)
        await eventually(lambda: "the root is still in memory" in caplog.text)
        assert authority.bundle() == before
        assert making.verifies(authority.sign(making.csr(), making.WEB).chain, before)


async def test_the_leader_writes_a_deleted_secret_again_with_the_same_root(client, namespace):
    async with replica(client, namespace) as (leading, authority):
        await leading.restore_if_gone()
        await client.delete(SECRETS, NAME, namespace=namespace)
        await eventually(lambda: leading._is_gone)
        await leading.restore_if_gone()
        await leading.restore_if_gone()
        async with replica(client, namespace) as (_, next_one):
            assert next_one.bundle() == authority.bundle()


async def published(client, namespace):
    """Publish the roots in a namespace, as the leader does in every namespace."""
    annotations = {"roots.weft.dev/istio-system.default": "digest"}
    manifest = {"metadata": {"name": "istio-ca-root-cert", "annotations": annotations}}
    await client.create(CONFIG_MAPS, manifest, namespace=namespace)


async def test_a_replica_that_starts_after_the_secret_was_deleted_waits_for_the_root_in_use(client, namespace):
    async with replica(client, namespace) as (leading, authority):
        await published(client, namespace)
        await client.delete(SECRETS, NAME, namespace=namespace)
        starting = asyncio.create_task(RootSecret(client, namespace, "cluster.local", TERMS).open())
        await eventually(lambda: leading._is_gone)
        assert not starting.done()
        await leading.restore_if_gone()
        assert (await starting).bundle() == authority.bundle()


async def test_a_lost_root_is_replaced_after_a_limited_wait(client, namespace, monkeypatch, caplog):
    monkeypatch.setattr(root_secret, "RESTORE_SECONDS", 0.6)
    await published(client, namespace)
    assert (await RootSecret(client, namespace, "cluster.local", TERMS).open()).bundle()
    assert "the root of cluster.local is lost" in caplog.text


async def test_another_trust_domain_is_refused(client, namespace):
    await RootSecret(client, namespace, "cluster.local", TERMS).open()
    with pytest.raises(AuthorityError, match=r"not 'other\.example'"):
        await RootSecret(client, namespace, "other.example", TERMS).open()
