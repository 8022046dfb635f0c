from weft.base.backoff import Backoff


def test_grows_up_to_the_cap_and_starts_over_after_success():
    backoff = Backoff(first=1, most=5, factor=2, jitter=0)
    assert [backoff.next() for _ in range(4)] == [1, 2, 4, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_jitter_spreads_around_the_delay():
    delays = {Backoff(first=1, jitter=0.5).next() for _ in range(50)}
    assert len(delays) > 1
    assert all(0.5 <= delay <= 1.5 for delay in delays)
