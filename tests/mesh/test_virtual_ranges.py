import msgspec

from model.builders import service
from weft.mesh.virtual_ranges import VirtualRanges
from weft.model.names import ObjectKey, Origin

ENTRY = Origin(ObjectKey("ServiceEntry", "shop", "outside"))


def entry(*addresses):
    return service("outside", addresses=addresses, origin=ENTRY)


def test_a_cluster_ip_adds_its_whole_range():
    ranges = VirtualRanges()
    ranges.add(service("orders", addresses=("10.96.3.4", "fd00:10:96::7")))
    assert ranges.ranges == ("10.96.0.0/16", "fd00:10:96::/112")


def test_a_service_entry_address_adds_no_range_unless_it_is_in_the_reserved_one():
    ranges = VirtualRanges()
    ranges.add(entry("93.184.216.34"))
    assert ranges.ranges == () and not ranges.covers(entry("93.184.216.34"))
    ranges.add(entry("240.240.0.7"))
    assert ranges.ranges == ("240.0.0.0/4",) and ranges.covers(entry("240.240.0.7"))


def test_ranges_do_not_shrink_when_services_are_removed():
    ranges, orders = VirtualRanges(), service("orders", addresses=("10.96.3.4",))
    ranges.add(orders)
    ranges.remove(orders)
    assert ranges.ranges == ("10.96.0.0/16",)
    assert ranges.at("10.96.3.4", 80) == []


def test_an_address_and_port_map_to_the_services_that_have_them():
    ranges, orders = VirtualRanges(), service("orders", addresses=("FD00:0::7",))
    ranges.add(orders)
    assert ranges.at("fd00::7", 80) == [orders]
    assert ranges.at("fd00::7", 81) == []


def test_only_services_with_virtual_addresses_are_covered():
    ranges = VirtualRanges()
    orders = service("orders", addresses=("10.96.3.4",))
    ranges.add(orders)
    assert ranges.covers(orders)
    for addresses in ((), ("10.96.3.4", "10.96.8.0/24"), ("10.97.0.1",)):
        assert not ranges.covers(service("orders", addresses=addresses))
    assert not ranges.covers(msgspec.structs.replace(orders, headless=True))
