from weft.local.asker_limits import BURST, RATE, AskerLimits


def test_a_client_has_a_burst_and_then_a_rate():
    limits = AskerLimits()
    assert sum(limits.admits("a", 0.0) for _ in range(10_000)) == BURST
    assert sum(limits.admits("a", 1.0) for _ in range(10_000)) == RATE
    assert sum(limits.admits("a", 100.0) for _ in range(10_000)) == BURST


def test_the_flood_of_one_client_takes_nothing_from_others():
    limits = AskerLimits()
    for step in range(10_000):
        limits.admits("flood", step / 10_000)
        if step % 100 == 0:
            assert limits.admits("calm", step / 10_000)


def test_work_in_progress_is_limited_for_each_client():
    limits = AskerLimits()
    assert [limits.begin("a", "x", 2) for _ in range(3)] == [True, True, False]
    assert limits.begin("a", "y", 2) and limits.begin("b", "x", 2)
    limits.end("a", "x")
    assert limits.begin("a", "x", 2)


def test_the_number_of_known_clients_is_bounded(monkeypatch):
    monkeypatch.setattr("weft.local.asker_limits._MOST_CLIENTS", 10)
    limits = AskerLimits()
    for number in range(1_000):
        limits.admits(str(number), 0.0)
        limits.begin(str(number), "x", 1)
        limits.end(str(number), "x")
    assert len(limits._allowances) == 10 and not limits._busy
