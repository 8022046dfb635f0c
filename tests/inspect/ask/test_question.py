from datetime import UTC, datetime

import pytest

from model.builders import instance, put, service
from weft.explain.url import BadSource
from weft.history.history import Forgotten, History
from weft.inspect.ask.question import BadTime, Question, moment, request_in
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.settings import Settings

NOW = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)


def test_a_source_address_is_rejected_unless_the_caller_is_a_gateway():
    mesh = Mesh()
    put(mesh, instance("orders-0", "orders", address="10.244.0.2", meshed=True, workload="orders"))
    with pytest.raises(BadSource, match=r"`198\.51\.100\.7` cannot be set for orders: it is not a gateway"):
        request_in(Stage(mesh), Question("orders", "http://payments/", source="198.51.100.7"), NOW)


@pytest.fixture
def history():
    """A history that began at 14:00 and changed at 14:01 and, in the middle of a second, after 14:02."""
    times = [
        datetime(2026, 11, 16, 14, 0, tzinfo=UTC).timestamp(),
        datetime(2026, 11, 16, 14, 1, tzinfo=UTC).timestamp(),
        datetime(2026, 11, 16, 14, 2, 7, 500_000, tzinfo=UTC).timestamp(),
    ]
    made = History(Mesh(), Settings(), digest=lambda: f"c0ffee00000{made.latest}", clock=times.pop)
    times.reverse()
    for number in range(3):
        made.note(ObjectKey("Service", "shop", str(number)), (), (service(str(number)),))
        made.seal()
    return made


@pytest.mark.parametrize(
    ("when", "number"),
    [
        ("14:00", 0),
        ("14:01", 1),
        ("14:01:59", 1),
        ("14:02:06", 1),
        ("14:02:07", 2),
        ("2026-11-16T14:02:07", 2),
        ("2026-11-16T14:02:07.4", 1),
        ("14:03", 2),
        ("2026-11-16T14:01", 1),
        ("2026-11-16T15:01+01:00", 1),
        ("@1", 1),
        ("@-1", 1),
        ("@-2", 0),
        ("@14:01", 1),
        ("@2026-11-16T14:01", 1),
        ("@c0ffee000001", 1),
        ("@c0ffee000000", 0),
        ("@c0ff", 2),
    ],
)
def test_a_moment_is_found_by_time_or_number(history, when, number):
    assert moment(history, when, lambda: NOW) == number


def test_a_time_of_day_in_the_future_means_yesterday(history):
    with pytest.raises(Forgotten):
        moment(history, "14:31", lambda: NOW)


@pytest.mark.parametrize("when", ["soon", "@", "@one", "25:00", "14.03"])
def test_an_invalid_time_raises_bad_time(history, when):
    with pytest.raises(BadTime, match="is not a time"):
        moment(history, when, lambda: NOW)
