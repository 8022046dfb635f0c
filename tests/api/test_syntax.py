from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.api.syntax import (
    has_milliseconds_at_most,
    is_address,
    is_dns_label,
    is_header,
    is_host,
    is_label_name,
    is_label_value,
    is_range,
    parse_duration,
    words,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.5s", 1.5),
        ("100ms", 0.1),
        ("1h2m", 3720),
        ("0s", 0),
        ("0", 0),
        (".5s", 0.5),
        ("1m0.5s", 60.5),
        ("250us", 0.00025),
    ],
)
def test_reads_durations_as_go_writes_them(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_durations_with_parts_of_a_millisecond_are_recognized():
    assert all(map(has_milliseconds_at_most, ("1s", "1.5s", "0.001s", "1000us", "0", "1m0.25s")))
    assert not any(map(has_milliseconds_at_most, ("1.5ms", "250us", "1.0000001s", "1ns", "1s1us")))


@pytest.mark.parametrize("text", ["", "5", "1.5", "1 s", "s", "-1s", "1d", "1s1", "1e3s"])
def test_other_durations_are_none(text):
    assert parse_duration(text) is None


@pytest.mark.parametrize("text", ["a", "a.b-c.example.com", "payments", "example.com.", "1.example"])
def test_host_names_are_recognised(text):
    assert is_host(text)


@pytest.mark.parametrize("text", ["", ".", "a..b", "-a", "a_b", "a b", "http://a", "a:80", "*", "a" * 64, "*.a"])
def test_texts_that_only_look_like_a_host_are_rejected(text):
    assert not is_host(text)


def test_wildcards_are_accepted_only_where_allowed_and_only_in_front():
    assert is_host("*", wildcard=True)
    assert is_host("*.example.com", wildcard=True)
    assert not is_host("*.", wildcard=True)
    assert not is_host("a.*.com", wildcard=True)
    assert not is_host("**", wildcard=True)


def test_addresses_and_ranges():
    assert is_address("10.0.0.1")
    assert is_address("2001:db8::1")
    assert not is_address("10.0.0.256")
    assert not is_address("fe80::1%eth0")
    assert is_range("10.0.0.0/8")
    assert is_range("10.0.0.1")
    assert not is_range("10.0.0.0/33")


def test_label_names_and_values_are_recognised():
    assert is_label_name("app.kubernetes.io/name")
    assert is_label_name("app")
    assert not is_label_name("/app")
    assert not is_label_name("a b")
    assert is_label_value("")
    assert is_label_value("v1.2_3")
    assert not is_label_value("a/b")
    assert is_dns_label("a-1")
    assert not is_dns_label("A")


def test_header_names_are_recognised():
    assert is_header("x-user")
    assert not is_header("x user")
    assert not is_header("")


@given(st.text(max_size=50))
def test_no_text_breaks_a_check(text):
    for check in (is_address, is_dns_label, is_header, is_host, is_label_name, is_label_value, is_range):
        check(text)
    parse_duration(text)


def test_words_are_split_at_any_space():
    assert words(" a\n  b ") == ["a", "b"]
