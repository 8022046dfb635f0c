import pytest

from model.builders import instance
from weft.model.service import ServicePort


@pytest.mark.parametrize(
    ("port", "number"),
    [
        (ServicePort(80, "web", target=8080), 8080),
        (ServicePort(80, "web", target="http"), 9000),
        (ServicePort(80, "web", target="absent"), None),
        (ServicePort(80, "http"), 9000),
        (ServicePort(80, "web"), 80),
    ],
)
def test_finds_the_port_that_serves_a_service_port(port, number):
    assert instance("pod", "orders", ports=(("http", 9000),)).port_for(port) == number
