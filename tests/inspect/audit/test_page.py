"""Tests of the audit that a control plane makes of its own mesh."""

import msgspec
import pytest

from model.builders import instance
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.inspect.audit.report import LookedOver
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode


@pytest.fixture
async def plane():
    made = ControlPlane()
    made.apply([])
    made.put(ObjectKey("Pod", "shop", "web-0"), (instance("web-0", "web", address="10.244.0.2", meshed=True),))
    yield made
    await made.close()


async def looked_over(plane, **query):
    answer = await attach_debug(plane).answer("audit", query)
    assert answer.status == 200
    return msgspec.json.decode(answer.body, type=LookedOver)


async def test_the_page_shows_the_workloads_that_accept_plaintext_now(plane):
    assert len((await looked_over(plane)).plaintext.findings) == 1
    assert (await looked_over(plane, namespace="other")).plaintext.findings == ()
    key = ObjectKey("PeerAuthentication", "shop", "default")
    plane.put(key, (PeerAuthentication("default", "shop", mode=TlsMode.STRICT, origin=Origin(key)),))
    assert (await looked_over(plane)).plaintext.findings == ()


async def test_a_policy_that_selects_no_workload_is_among_the_problems(plane):
    key = ObjectKey("PeerAuthentication", "shop", "lost")
    policy = PeerAuthentication("lost", "shop", labels_of({"app": "nobody"}), TlsMode.STRICT, origin=Origin(key))
    plane.put(key, (policy,))
    assert [each.code for each in (await looked_over(plane)).problems] == ["WFT0503"]


async def test_the_version_page_returns_the_control_planes_version(plane):
    from weft import __version__

    assert msgspec.json.decode((await attach_debug(plane).answer("version")).body) == {"version": __version__}
