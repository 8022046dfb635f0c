"""The config that a proxy would have after its first calls."""

import json

import pytest

from model.builders import instance, service
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.inspect.first_call import NotCallable, after_first_call
from weft.inspect.live import live_stage
from weft.model.names import ObjectKey
from weft.model.on_demand import OnDemand
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, Sidecar
from weft.translate.names import called_host
from weft.xds.types import CLUSTER

DOMAIN = "shop.svc.cluster.local"
NAMES = ("cart", "payments", "stock")


@pytest.fixture
async def plane():
    plane = ControlPlane()
    plane.apply([])
    plane.put(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=OnDemand.ON),))
    plane.put(ObjectKey("Pod", "shop", "web-0"), (instance("web-0", "web", address="10.244.0.2", meshed=True),))
    for number, name in enumerate(NAMES):
        plane.put(ObjectKey("Service", "shop", name), (service(name, addresses=(f"10.96.0.{number + 1}",)),))
    yield plane
    await plane.close()


def hosts(plane, *called):
    stage = live_stage(plane)
    after = after_first_call(plane, stage, "web-0.shop", called)
    names = after.versions(stage.group("web-0.shop"), (CLUSTER,))
    return {host for _, name in names if (host := called_host(name))}


async def test_a_called_host_is_added_and_nothing_is_recorded(plane):
    stage = live_stage(plane)
    assert hosts(plane, "cart") == {f"cart.{DOMAIN}"}
    assert hosts(plane, f"cart.{DOMAIN}", "stock.shop") == {f"cart.{DOMAIN}", f"stock.{DOMAIN}"}
    assert not plane.calls.of(stage.group("web-0.shop")).hosts


async def test_without_a_host_every_host_is_called(plane):
    assert hosts(plane) == {f"{name}.{DOMAIN}" for name in NAMES}


async def test_a_host_that_does_not_exist_or_is_hidden_is_a_problem(plane):
    with pytest.raises(NotCallable) as unknown:
        hosts(plane, "cartt")
    assert (unknown.value.problem.what, unknown.value.problem.hint) == (
        "there is no service `cartt`",
        "did you mean `cart`?",
    )
    plane.put(ObjectKey("Sidecar", "shop", "few"), (Sidecar("few", "shop", egress=(EgressListener(("./cart",)),)),))
    with pytest.raises(NotCallable) as hidden:
        hosts(plane, "stock")
    assert hidden.value.problem.what == (f"the proxy never gets stock.{DOMAIN}: Sidecar shop/few does not include it")


async def test_the_page_is_a_dump_with_endpoints(plane):
    debug = attach_debug(plane)
    answer = await debug.answer("first_call", {"question": json.dumps({"proxy": "web-0", "hosts": ["cart"]})})
    sections = {each["@type"].rpartition(".")[2] for each in json.loads(answer.body)["configs"]}
    assert answer.status == 200 and {"ClustersConfigDump", "EndpointsConfigDump", "ListenersConfigDump"} <= sections
    answer = await debug.answer("first_call", {"question": json.dumps({"proxy": "web-0", "hosts": ["x"]})})
    assert answer.status == 400 and "there is no service `x`" in answer.body.decode()
