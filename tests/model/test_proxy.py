from weft.model.proxy import published_socket


def test_each_published_port_has_a_socket_of_its_own():
    assert published_socket(443) == "published-443.sock" != published_socket(80)
