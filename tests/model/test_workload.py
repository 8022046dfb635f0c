import pytest

from weft.model.workload import Workload


@pytest.mark.parametrize(("written", "ports"), [("*", None), ("", ()), ("80", (80,)), ("80, 8080,", (80, 8080))])
def test_says_at_which_ports_alone_it_is_intercepted(written, ports):
    assert Workload("web", "shop", ("true",), include_inbound_ports=written).included_ports == ports
