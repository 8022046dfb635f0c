from pathlib import PurePath

from weft.model.proxy import OWN_PORTS, TAKEN_PORTS, published_socket


def test_a_published_ports_socket_is_in_the_directory_its_gateway_was_started_in():
    assert not PurePath(published_socket(443)).is_absolute()
    assert len(PurePath(published_socket(443)).parts) == 1
    assert len(published_socket(65_535)) < 30  # with a directory before it, it must fit into 107 bytes
    assert published_socket(443) != published_socket(80)


def test_the_reserved_ports_of_a_gateway_are_not_interception_ports():
    assert {15001, 15006} <= TAKEN_PORTS - OWN_PORTS
