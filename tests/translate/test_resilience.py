from pathlib import Path

import pytest
import yaml
from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.core.v3.protocol_pb2 import Http2ProtocolOptions
from google.protobuf.unknown_fields import UnknownFieldSet
from google.protobuf.wrappers_pb2 import UInt64Value

from weft.model.destination_rule import RetryBudget
from weft.translate.resilience import (
    GATEWAY_WINDOW,
    RESETS_OF_PROXIES,
    ResetLimit,
    limit_resets,
    limit_retries,
    limit_windows,
)

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*/resources.yaml"))


def limited(budget, most):
    limits = CircuitBreakers.Thresholds()
    limit_retries(limits, budget, most)
    return limits


def test_the_default_retry_budget_applies_where_none_is_configured():
    found = limited(None, None)
    assert (found.retry_budget.budget_percent.value, found.retry_budget.min_retry_concurrency.value) == (20, 3)
    assert not found.HasField("max_retries")
    assert limited(None, 0) == found


def test_max_retries_replaces_the_default_budget_and_a_configured_budget_has_precedence():
    assert limited(None, 6).max_retries.value == 6
    assert not limited(None, 6).HasField("retry_budget")
    both = limited(RetryBudget(50, 1), 6)
    assert (both.retry_budget.budget_percent.value, both.retry_budget.min_retry_concurrency.value) == (50, 1)


def windows(stream, connection=0):
    options = Http2ProtocolOptions()
    limit_windows(options, stream, connection)
    return options.initial_stream_window_size.value, options.initial_connection_window_size.value


def test_a_connections_window_fits_all_its_streams():
    """1024 is how many streams Envoy lets a peer open; the tests on the wire are in `e2e/test_raw_http.py`."""
    assert windows(GATEWAY_WINDOW) == (256 << 10, 256 << 20)
    assert windows(64 << 10, 1 << 20) == (64 << 10, 1 << 20)


@pytest.mark.parametrize("limit", [ResetLimit(250, 33), RESETS_OF_PROXIES])
def test_a_limit_of_resets_has_the_field_numbers_of_envoy(limit):
    """xds-protos lacks the fields; that Envoy reads them is shown in `e2e/test_resets.py`."""
    options = Http2ProtocolOptions(allow_connect=True)
    limit_resets(options, limit)
    copied = Http2ProtocolOptions.FromString(options.SerializeToString())
    fields = {field.field_number: UInt64Value.FromString(field.data).value for field in UnknownFieldSet(copied)}
    assert fields == {21: limit.burst, 22: limit.rate}
    assert copied.allow_connect


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_every_http2_config_has_windows_that_slow_readers_cannot_fill(path):
    for options in named("http2_protocol_options", yaml.safe_load(path.read_text())):
        stream, connection = options["initial_stream_window_size"], options["initial_connection_window_size"]
        assert connection == 1024 * stream or (stream, connection) == (64 << 10, 1 << 20)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_every_cluster_limits_its_retries(path):
    """All clusters except BlackHoleCluster."""
    made = [each for found in named("clusters", yaml.safe_load(path.read_text())) for each in found]
    for cluster in (each for each in made if "connect_timeout" in each and each["name"] != "BlackHoleCluster"):
        (limits,) = cluster["circuit_breakers"]["thresholds"]
        assert "retry_budget" in limits or "max_retries" in limits, cluster["name"]


def named(key, value):
    """Everything of this name, at any depth."""
    if isinstance(value, list):
        return [found for each in value for found in named(key, each)]
    if not isinstance(value, dict):
        return []
    return [*([value[key]] if key in value else []), *(found for each in value.values() for found in named(key, each))]
