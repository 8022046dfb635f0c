from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug


async def test_the_pages_list_istios_and_wefts_own():
    plane = ControlPlane()
    body = (await attach_debug(plane).answer("list")).body.decode()
    assert '"syncz"' in body and '"explain"' in body
    await plane.close()
