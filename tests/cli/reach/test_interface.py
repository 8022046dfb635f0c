import pytest

from weft.cli.reach.control import Control
from weft.cli.reach.interface import Proxy, Reach
from weft.cli.reach.kubernetes import Kubernetes
from weft.cli.reach.local import Local

METHODS = [name for name in vars(Reach) if not name.startswith("_")]


@pytest.mark.parametrize("way", [Local, Control, Kubernetes])
def test_every_way_to_reach_a_mesh_can_do_the_same(way):
    assert METHODS and all(callable(getattr(way, name, None)) for name in METHODS)


def test_a_proxy_is_called_by_its_pod_and_namespace():
    assert str(Proxy("web-0", "shop")) == "web-0.shop"
