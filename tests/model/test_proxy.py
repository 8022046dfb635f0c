from pathlib import PurePath

from weft.model.proxy import OWN_PORTS, TAKEN_PORTS, published_socket


def test_a_published_ports_socket_is_in_the_directory_its_gateway_was_started_in():
    assert not PurePath(published_socket(443)).is_absolute()
    assert len(PurePath(published_socket(443)).parts) == 1
    assert len(published_socket(65_535)) < 30  # with a directory before it, it must fit into 107 bytes
    assert published_socket(443) != published_socket(80)


def test_what_a_gateway_keeps_for_itself_is_no_port_of_interception():
    assert {15001, 15006} <= TAKEN_PORTS - OWN_PORTS
