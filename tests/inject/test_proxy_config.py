import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.inject.proxy_config import ProxyConfig, read


def test_the_fields_that_are_used_are_read():
    config, errors, warnings = read(
        "concurrency: 0\nholdApplicationUntilProxyStarts: false\nterminationDrainDuration: 1m\ndrainDuration: 30s\n"
        "interceptionMode: NONE\nstatusPort: 0\nproxyMetadata:\n  B: 1\n  A: true\n  C: x\n"
    )
    assert (errors, warnings) == ([], [])
    assert config == ProxyConfig(
        concurrency=0,
        hold_application_until_proxy_starts=False,
        termination_drain_duration="1m",
        drain_duration="30s",
        interception_mode="NONE",
        status_port=0,
        proxy_metadata={"A": "true", "B": "1", "C": "x"},
    )


@pytest.mark.parametrize("text", ["", "---", "{}", "null"])
def test_an_empty_config_has_no_settings(text):
    assert read(text) == (ProxyConfig(), [], [])


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "text",
        "concurrency: -1",
        "concurrency: true",
        "concurrency: 1.5",
        "holdApplicationUntilProxyStarts: 'true'",
        "terminationDrainDuration: 5",
        "drainDuration: soon",
        "interceptionMode: TPROXY",
        "statusPort: 70000",
        "proxyMetadata: [A]",
        "proxyMetadata: {A: {b: c}}",
    ],
)
def test_what_would_be_used_and_cannot_be_read_is_an_error(text):
    _, errors, _ = read(text)
    assert len(errors) == 1


@given(st.text(max_size=200))
def test_arbitrary_text_does_not_raise(text):
    read(text)
