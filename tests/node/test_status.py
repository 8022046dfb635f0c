import msgspec

from weft.node.status import IdentityStatus, clock_text

WELL = IdentityStatus(
    workload="shop/web-0", identity="spiffe://x/ns/shop/sa/web", serial="1f", not_before=10, not_after=100
)


def test_a_certificate_is_held_only_between_its_two_ends():
    assert [WELL.is_held(now) for now in (9, 10, 99, 100)] == [False, True, True, False]
    assert not IdentityStatus(workload="a", identity="b").is_held(0)


def test_a_valid_certificate_has_no_warning_and_a_missing_one_has():
    assert (WELL.trouble(50), WELL.warning(50)) == ("", "")
    assert IdentityStatus(workload="a", identity="b").trouble(0) == "no certificate yet"


def test_an_expired_certificate_is_reported_as_expired_and_not_only_as_late():
    late = msgspec.structs.replace(WELL, failing_since=80.0, error="the CA is away")
    assert late.warning(99) == "certificate not renewed since 1970-01-01 00:01:20 UTC"
    assert late.warning(100) == WELL.warning(100) == "certificate EXPIRED at 1970-01-01 00:01:40 UTC"


def test_times_are_read_the_same_everywhere():
    assert clock_text(0) == "1970-01-01 00:00:00 UTC"
