"""Secrets that a proxy rejects because of their files are sent again, each time in different bytes. With a real Envoy:
`tests/translate/test_gateway_tls.py`."""

import asyncio
from types import SimpleNamespace

import pytest
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from eventually import eventually
from weft.base.problem import Where
from weft.control.problems import Problems
from weft.control.quarantine import Quarantine
from weft.model.group import Group, ProxyKind
from weft.translate.built import build
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource
from weft.xds.types import SECRET

GROUP = Group(ProxyKind.GATEWAY, "edge")


class Rig:
    """A quarantine, and a proxy that accepts or rejects a secret when the test calls it."""

    def __init__(self, secret):
        self.snapshots = Snapshots()
        self.problems = Problems()
        push = SimpleNamespace(resource=lambda *_: None)
        self.quarantine = Quarantine(push, self.snapshots, self.problems, lambda _: Where())
        self.snapshots.update(GROUP, {SECRET: {"shown": build("shown", secret)}})

    @property
    def sent(self):
        return self.snapshots.resources(GROUP, SECRET).get("shown")

    def refuse(self):
        version = self.sent.version
        self.snapshots.reject(GROUP, SECRET, "shown", version, "no")
        self.quarantine.refused(NackedResource(GROUP, SECRET, "shown", version, "no", "ingress-0"))

    def take(self):
        self.snapshots.accept(GROUP, SECRET, [self.sent])
        self.quarantine.accepted(GROUP, SECRET)

    def told(self):
        self.quarantine.forget_mended()
        return [each.hint for each in self.problems.all()]

    async def until_sent(self):
        await eventually(lambda: self.sent is not None)
        return self.sent


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("weft.control.push.unread_secrets._FIRST_SECONDS", 0.01)


def in_files():
    secret = Secret(name="shown")
    secret.tls_certificate.certificate_chain.filename = "/certs/tls.crt"
    secret.tls_certificate.private_key.filename = "/certs/tls.key"
    secret.tls_certificate.watched_directory.path = "/certs"
    return secret


def watched(resource):
    return Secret.FromString(resource.body).tls_certificate.watched_directory.path


async def test_each_retry_has_different_bytes_until_it_is_accepted():
    rig = Rig(in_files())
    rig.refuse()
    assert rig.sent is None
    found = []
    for _ in range(3):
        found.append(watched(await rig.until_sent()))
        rig.refuse()
    assert found == ["/certs/.", "/certs", "/certs/."]
    await rig.until_sent()
    rig.take()
    taken = rig.sent
    await asyncio.sleep(0.2)
    assert rig.sent is taken and rig.told() == []


async def test_it_stays_a_problem_while_it_is_tried_again():
    rig = Rig(in_files())
    rig.refuse()
    (hint,) = rig.told()
    assert "user 1337" in hint
    await rig.until_sent()
    assert rig.told() == [hint]
    rig.snapshots.update(GROUP, {SECRET: {"shown": None}})
    assert rig.told() == []


async def test_a_rejected_secret_that_is_not_in_files_is_not_retried():
    secret = Secret(name="shown")
    secret.tls_certificate.private_key.inline_bytes = b"none"
    rig = Rig(secret)
    rig.refuse()
    (hint,) = rig.told()
    assert "correct the object" in hint
    await asyncio.sleep(0.2)
    assert rig.sent is None


async def test_a_group_without_proxies_is_sent_nothing():
    rig = Rig(in_files())
    rig.refuse()
    rig.quarantine.forget(GROUP)
    await asyncio.sleep(0.2)
    assert rig.sent is None
