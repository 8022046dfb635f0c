from weft.model.endpoint_slice import EndpointSlice, SliceEndpoint


def test_a_port_is_found_by_the_name_that_the_service_gives_it():
    found = EndpointSlice("orders-x", "shop", "orders", (("http", 8080), ("", 9090)))
    assert (found.port("http"), found.port(""), found.port("grpc")) == (8080, 9090, None)


def test_the_key_of_an_endpoint_without_a_pod_is_its_address():
    assert SliceEndpoint("10.0.0.1", pod="orders-0").key == "orders-0"
    assert SliceEndpoint("10.0.0.1").key == "10.0.0.1"
