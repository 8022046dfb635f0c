import pytest

from weft.model.carried import Carried
from weft.model.service import Protocol

HTTP, GRPC, TCP, UNSAID = Protocol.HTTP, Protocol.GRPC, Protocol.TCP, Protocol.UNDECLARED


@pytest.mark.parametrize(
    ("said", "http", "bytes_", "detected"),
    [
        ((HTTP,), True, False, False),
        ((TCP,), False, True, False),
        ((UNSAID,), True, True, True),
        ((HTTP, TCP), True, True, True),
        ((TCP, HTTP), True, True, False),  # a server that speaks first is not made to wait by a newcomer
        ((UNSAID, HTTP), True, True, True),
        ((HTTP, UNSAID), True, False, False),  # who does not say what comes opens nothing
        ((UNSAID, TCP), True, True, True),
        ((TCP, UNSAID), False, True, False),
        ((HTTP, GRPC), True, False, False),
        ((Protocol.UDP,), False, True, False),
    ],
)
def test_declared_protocols_decide_http_tcp_and_detection(said, http, bytes_, detected):
    carried = Carried(said)
    assert (carried.http, carried.bytes, carried.detected) == (http, bytes_, detected)


@pytest.mark.parametrize(
    ("said", "spoken", "as_called", "both_ways"),
    [
        ((HTTP,), HTTP, False, False),
        ((TCP,), None, False, False),
        ((UNSAID,), None, True, False),
        ((TCP, HTTP), HTTP, False, False),
        ((UNSAID, HTTP), HTTP, True, True),
        ((GRPC, UNSAID), GRPC, True, True),
        ((TCP, UNSAID), None, True, False),
        ((HTTP, GRPC), HTTP, False, False),
        ((GRPC, HTTP), GRPC, False, False),
    ],
)
def test_the_http_version_to_the_workload_is_the_first_declared_one(said, spoken, as_called, both_ways):
    carried = Carried(said)
    assert (carried.spoken, carried.as_called, carried.both_ways) == (spoken, as_called, both_ways)
