import pytest

from weft.model.workload import Workload


@pytest.mark.parametrize(("written", "ports"), [("*", None), ("", ()), ("80", (80,)), ("80, 8080,", (80, 8080))])
def test_included_ports_are_parsed_from_a_list(written, ports):
    assert Workload("web", "shop", ("true",), include_inbound_ports=written).included_ports == ports
