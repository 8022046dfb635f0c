from control.proxy import changes
from control.test_plane import ORDERS
from model.builders import group
from weft.control.plane import ControlPlane
from weft.inspect.live import live_stage
from weft.xds.types import CLUSTER


async def test_the_stage_holds_what_the_proxies_are_served():
    plane = ControlPlane()
    plane.apply(changes(ORDERS))
    plane.hold(group("web"))
    served = plane.snapshots.resources(group("web"), CLUSTER)
    stage = live_stage(plane).resources(group("web"))[CLUSTER]
    assert served and set(served) == set(stage)
    await plane.close()
