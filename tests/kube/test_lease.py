import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from eventually import eventually
from kube.following import connected
from kube.wire import wire
from weft.kube.client import Client
from weft.kube.lease import Leader, LeaseTiming
from weft.kube.resource import LEASES

QUICK = LeaseTiming(duration=2.0, deadline=1.4, retry=0.2)
# For leads that must last: a machine under load may take a second to answer one renewal.
STEADY = LeaseTiming(duration=5.0, deadline=4.0, retry=0.2)

CANDIDATE = """
import asyncio, sys
from pathlib import Path
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.client import Client
from weft.kube.lease import Leader, LeaseTiming

async def lead():
    print("leads", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("ends", flush=True)

async def main(kubeconfig, namespace):
    async with Client(load(Path(kubeconfig))) as client:
        timing = LeaseTiming(duration=2.0, deadline=1.4, retry=0.2)
        await Leader(client, namespace, "lead", "process", timing=timing).run(lead)

asyncio.run(main(*sys.argv[1:]))
"""


class Led:
    """A task that only one may do."""

    def __init__(self):
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.times = 0

    async def __call__(self):
        self.times += 1
        self.ended.clear()
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.begun.clear()
            self.ended.set()


@asynccontextmanager
async def candidate(client, namespace, identity, timing=QUICK):
    led = Led()
    led.leader = Leader(client, namespace, "lead", identity, timing=timing)
    led.task = asyncio.create_task(led.leader.run(led))
    try:
        yield led
    finally:
        led.task.cancel()
        await asyncio.gather(led.task, return_exceptions=True)


async def soon(event, seconds=20.0):
    async with asyncio.timeout(seconds):
        await event.wait()


async def spec(client, namespace):
    return (await client.get(LEASES, "lead", namespace=namespace))["spec"]


async def test_another_replica_leads_at_once_after_the_lease_is_released(client, namespace):
    async with candidate(client, namespace, "one") as one:
        await soon(one.begun)
        assert one.leader.leading
        async with candidate(client, namespace, "two", LeaseTiming(duration=60.0, deadline=40.0, retry=0.2)) as two:
            await eventually(lambda: two.leader.holder == "one")
            assert not two.begun.is_set()
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)
            assert one.ended.is_set()
            assert not one.leader.leading
            await soon(two.begun)
            held = await spec(client, namespace)
            assert (held["holderIdentity"], held["leaseTransitions"]) == ("two", 1)
            assert held["leaseDurationSeconds"] == 60


async def test_the_holder_renews_and_others_wait(client, namespace):
    async with (
        candidate(client, namespace, "one", STEADY) as one,
        candidate(client, namespace, "two", STEADY) as two,
    ):
        async with asyncio.timeout(20):
            await asyncio.wait(
                [asyncio.create_task(one.begun.wait()), asyncio.create_task(two.begun.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        before = await spec(client, namespace)
        await asyncio.sleep(STEADY.duration * 1.5)  # longer than a lease that nobody renews
        after = await spec(client, namespace)
        assert one.times + two.times == 1
        assert after["renewTime"] > before["renewTime"]
        assert after["acquireTime"] == before["acquireTime"]


async def test_a_disconnected_leader_stops_before_the_next_one_begins(api_server, client, namespace):
    address = urlsplit(api_server.server)
    async with (
        wire(address.hostname, address.port) as line,
        connected(api_server, server=f"https://127.0.0.1:{line.port}") as remote,
        candidate(remote, namespace, "far") as far,
    ):
        await soon(far.begun)
        async with candidate(client, namespace, "near") as near:
            line.stall()
            await soon(far.ended)
            assert not near.begun.is_set(), "two would have led"
            await soon(near.begun)
            line.flow()
            await eventually(lambda: far.leader.holder == "near")
            assert far.times == 1
            assert not far.leader.leading


async def test_a_frozen_process_loses_the_lease_and_stops_leading_when_it_resumes(api_server, client, namespace):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CANDIDATE,
        str(api_server.kubeconfig),
        namespace,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"leads\n"
            async with candidate(client, namespace, "here") as here:
                process.send_signal(signal.SIGSTOP)
                await soon(here.begun)
                process.send_signal(signal.SIGCONT)
                assert await process.stdout.readline() == b"ends\n"
                assert here.leader.leading
                assert (await spec(client, namespace))["holderIdentity"] == "here"
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("clock", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
async def test_timestamps_in_the_lease_are_ignored(client, namespace, clock):
    """A holder whose clock is wrong is as alive as it is seen to be: for one duration from when we first look."""
    held = {"holderIdentity": "elsewhere", "leaseDurationSeconds": 1, "acquireTime": clock, "renewTime": clock}
    manifest = {"metadata": {"name": "lead", "labels": {"kept": "yes"}}, "spec": held}
    await client.create(LEASES, manifest, namespace=namespace)
    began = asyncio.get_running_loop().time()
    async with candidate(client, namespace, "here") as here:
        await soon(here.begun)
        assert asyncio.get_running_loop().time() - began >= 1.0
        found = await client.get(LEASES, "lead", namespace=namespace)
        assert found["metadata"]["labels"] == {"kept": "yes"}, "what others wrote there is left alone"


async def test_a_lease_taken_by_another_process_ends_the_lead(client, namespace):
    async with candidate(client, namespace, "one") as one:
        await soon(one.begun)
        await client.patch(LEASES, "lead", {"spec": {"holderIdentity": "usurper"}}, namespace=namespace)
        await soon(one.ended)
        assert one.leader.holder == "usurper"
        await soon(one.begun)  # which does not renew it
        assert one.times == 2


async def test_a_deleted_lease_is_created_again_by_its_holder(client, namespace):
    async with candidate(client, namespace, "one", STEADY) as one:
        await soon(one.begun)
        await client.delete(LEASES, "lead", namespace=namespace)
        await eventually(lambda: client.list(LEASES, dict, namespace=namespace), lambda value: value.items, every=0.05)
        assert one.times == 1


async def test_when_lead_returns_or_raises_the_lease_is_released(client, namespace):
    async def fails():
        raise RuntimeError("broken")

    leader = Leader(client, namespace, "lead", "one", timing=QUICK)
    with pytest.raises(RuntimeError, match="broken"):
        await leader.run(fails)
    assert not (await spec(client, namespace)).get("holderIdentity")

    async def done():
        pass

    await leader.run(done)
    assert not leader.leading


async def test_the_lease_is_renewed_until_the_lead_has_ended(client, namespace):
    finish = asyncio.Event()
    begun = asyncio.Event()

    async def slow():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await finish.wait()

    leader = Leader(client, namespace, "lead", "one", timing=STEADY)
    task = asyncio.create_task(leader.run(slow))
    await soon(begun)
    async with candidate(client, namespace, "two", STEADY) as two:
        task.cancel()
        await asyncio.sleep(STEADY.duration * 1.5)  # longer than a lease that nobody renews
        assert not task.done()
        assert two.times == 0
        finish.set()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await soon(two.begun)


async def test_concurrent_changes_of_other_fields_do_not_end_the_lead(api_server, namespace):
    class Raced(Client):
        """Somebody labels the lease between our look and our write."""

        races = 0

        async def patch(self, resource, name, patch, *rest, **options):
            if self.races < 3:
                self.races += 1
                label = {"metadata": {"labels": {"race": str(self.races)}}}
                await super().patch(resource, name, label, namespace=options["namespace"])
            return await super().patch(resource, name, patch, *rest, **options)

    async with (
        connected(api_server) as plain,
        Raced(plain.connection) as client,
        candidate(client, namespace, "one", STEADY) as one,
    ):
        await soon(one.begun)
        before = await spec(client, namespace)
        await eventually(
            lambda: spec(client, namespace), lambda value: value["renewTime"] != before["renewTime"], every=0.05
        )
        assert client.races == 3
        assert one.times == 1


async def test_a_missing_namespace_is_waited_for(client, api_server, caplog):
    async with candidate(client, "lease-later", "one") as one:
        await eventually(lambda: "cannot be acquired" in caplog.text)
        api_server.make_namespace("lease-later")
        await soon(one.begun)


def test_invalid_timing_is_rejected(api_server):
    with pytest.raises(ValueError, match="retry < deadline < duration"):
        Leader(None, "default", "lead", "one", timing=LeaseTiming(duration=5, deadline=10))
