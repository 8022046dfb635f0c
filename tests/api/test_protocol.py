import pytest

from weft.api.protocol import from_name
from weft.model.service import Protocol


@pytest.mark.parametrize(
    ("name", "number", "protocol"),
    [
        ("http-web", 80, "http"),
        ("http", 80, "http"),
        ("HTTP2-x", 80, "http2"),
        ("grpc", 1, "grpc"),
        ("grpc-web-x", 1, "grpc-web"),
        ("mysql-x", 1, "mysql"),
        ("redis", 1, "redis"),
        ("mongo", 1, "mongo"),
        ("udp-x", 1, "udp"),
        ("tls", 1, "tls"),
        ("web", 80, "undeclared"),
        ("", 80, "undeclared"),
        ("httpx", 80, "undeclared"),
        ("", 3306, "tcp"),
        ("db", 27017, "tcp"),
        ("http", 3306, "http"),
    ],
)
def test_the_prefix_of_a_port_name_decides_the_protocol(name, number, protocol):
    assert from_name(name, number) is Protocol(protocol)
