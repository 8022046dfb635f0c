import pytest

from weft.cli.reach.control import ControlReach
from weft.cli.reach.interface import MeshReach, PodProxy
from weft.cli.reach.kubernetes import ClusterReach
from weft.cli.reach.local import LocalReach

METHODS = [name for name in vars(MeshReach) if not name.startswith("_")]


@pytest.mark.parametrize("way", [LocalReach, ControlReach, ClusterReach])
def test_every_way_to_reach_a_mesh_can_do_the_same(way):
    assert METHODS and all(callable(getattr(way, name, None)) for name in METHODS)


def test_a_proxy_is_called_by_its_pod_and_namespace():
    assert str(PodProxy("web-0", "shop")) == "web-0.shop"
