"""`weft.xds` parses names that `weft.translate` builds, without importing it: both must agree."""

from weft.mesh.calls import MOST
from weft.translate import names
from weft.xds import on_demand


def test_xds_and_translate_read_the_same_names():
    assert (on_demand.HOLD, on_demand.RESUMED) == (names.HOLD, names.AGAIN)
    for address in ("10.0.0.1", "fd00::1"):
        for cluster in names.held(address):
            assert on_demand.held_address(cluster) == names.called_at(cluster) == address
    assert on_demand.is_whole_port(names.listener("0.0.0.0", 80)) and not on_demand.is_whole_port("10.0.0.1_80")
    assert not any(on_demand.is_whole_port(f"0.0.0.0_{port}") for port in ("", "http", "999999", "8 0"))
    cluster = names.outbound_cluster("web.shop.svc.cluster.local", 80, "v1")
    assert on_demand.cluster_host(cluster) == names.called_host(cluster) == "web.shop.svc.cluster.local"


def test_xds_and_mesh_have_the_same_limit():
    assert on_demand.CALLED == MOST
