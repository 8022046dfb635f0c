"""The agent with several workloads and one CA; real Envoys are in test_sds.py."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from identity_rig import identities
from weft.base.secrecy import is_memory_private
from weft.ca.signer import CaUnavailable
from weft.model.proxy import CERTIFICATE, ROOTS
from weft.node.door import DoorError

pytestmark = pytest.mark.root


async def test_a_failure_of_one_workload_does_not_affect_others(tmp_path):
    async with identities(tmp_path) as rig:
        await rig.add("web-0")
        await rig.until(lambda: rig.status("web-0").serial)
        rig.line.cut = True
        await rig.add("api-0")
        await rig.until(lambda: rig.status("api-0").error)
        assert rig.agent.lack("shop/web-0") == ""
        assert "no identity: no certificate since" in rig.agent.lack("shop/api-0")
        assert rig.agent.lack("shop/nobody") == "the workload has no identity"
        assert is_memory_private()


async def test_the_roots_are_there_before_the_certificate_is(tmp_path):
    async with identities(tmp_path) as rig:
        rig.line.cut = True
        await rig.add("web-0")
        await rig.until(lambda: rig.status().roots)
        secrets = rig.agent._secrets
        assert secrets.has("shop/web-0", ROOTS) and not secrets.has("shop/web-0", CERTIFICATE)


async def test_a_workload_that_is_added_again_replaces_the_first(tmp_path):
    async with identities(tmp_path) as rig:
        first = await rig.add("web-0", account="web")
        await rig.until(lambda: rig.status().serial)
        assert await rig.add("web-0", account="api") == first and first.exists()
        await rig.until(lambda: rig.status().serial)
        assert rig.status().identity.endswith("/sa/api") and len(rig.agent.statuses()) == 1


async def test_a_socket_that_cannot_be_made_leaves_nothing_behind(tmp_path):
    async with identities(tmp_path) as rig:
        with pytest.raises(DoorError):
            await rig.add("x" * 120)
        assert rig.agent.statuses() == [] and list((tmp_path / "private").iterdir()) == []
        await rig.add("web-0")
        await rig.until(lambda: rig.status().serial)


async def test_following_the_roots_begins_again_when_it_broke(tmp_path, monkeypatch):
    async with identities(tmp_path) as rig:
        await rig.add("web-0")
        await rig.until(lambda: rig.status().roots)
        tries = []
        whole = rig.line.bundles

        async def broken():
            tries.append(1)
            if len(tries) < 3:
                raise (CaUnavailable("the line broke") if len(tries) == 1 else RuntimeError("a mistake of ours"))
            async for bundle in whole():
                yield bundle

        monkeypatch.setattr(rig.line, "bundles", broken)
        rig.agent._following.cancel()
        await asyncio.wait({rig.agent._following})
        rig.agent._following = asyncio.create_task(rig.agent._follow_roots())
        rig.authority.rotate(timedelta(hours=1))
        await rig.until(lambda: len(rig.status().roots) == 2)
        assert len(tries) == 3
