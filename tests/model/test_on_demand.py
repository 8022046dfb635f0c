from weft.model.on_demand import (
    EVERYTHING,
    FEW,
    Brought,
    Judgement,
    OnDemand,
    Telling,
    overflowing,
    retold,
    with_brought,
)

RANGES = ("10.96.0.0/16",)
OFF, ON = Judgement(OnDemand.OFF, 5_000), Judgement(OnDemand.ON, 1)
TOLD = frozenset({"cart", "orders"})


def test_auto_is_on_with_more_than_a_few_services():
    assert not Judgement(OnDemand.AUTO, FEW).on
    assert Judgement(OnDemand.AUTO, FEW + 1).on
    assert ON.on and not OFF.on, "what is written holds for any number"


def test_a_judgement_is_shown_with_its_reason():
    counted = "1,213 services could be called from here, more than 100; weft.dev/on-demand: auto"
    assert str(Judgement(OnDemand.AUTO, 1_213)) == counted
    assert str(Judgement(OnDemand.AUTO, 7)).startswith("7 services could be sent on demand, not more than 100;")
    assert str(Judgement(OnDemand.AUTO, 0)).startswith("no service could be sent on demand")
    assert str(Judgement(OnDemand.AUTO, 1, few=0)).startswith("1 service could be called from here, more than 0;")
    assert str(ON) == "weft.dev/on-demand: true" and str(OFF) == "weft.dev/on-demand: false"


def test_a_new_group_keeps_no_hosts():
    assert retold(None, OFF, RANGES, TOLD) == EVERYTHING
    assert retold(None, ON, RANGES, TOLD) == Telling(every=False, held=True, ranges=RANGES)


def test_a_running_group_keeps_its_hosts_and_listeners():
    up = retold(EVERYTHING, ON, RANGES, TOLD)
    assert up == Telling(every=False, held=True, shared=True, ranges=RANGES, kept=TOLD)
    assert retold(up, ON, (*RANGES, "10.97.0.0/16"), frozenset()).kept == TOLD
    assert retold(up, ON, RANGES, frozenset({"late"})).kept == TOLD | {"late"}
    assert retold(up, ON, RANGES, TOLD) is up
    down = retold(up, OFF, (), frozenset())
    assert down == Telling(every=True, held=True, shared=True, ranges=RANGES)
    assert retold(down, ON, RANGES, TOLD) == up


def test_a_group_that_began_on_demand_has_no_shared_listeners_after_full_config():
    down = retold(retold(None, ON, RANGES, TOLD), OFF, RANGES, TOLD)
    assert not down.shared and not retold(down, ON, RANGES, TOLD).shared


def test_a_group_that_calls_too_many_hosts_holds_no_calls():
    too_many = overflowing(retold(None, ON, RANGES, TOLD))
    assert too_many.every and too_many.held and too_many.too_many and not too_many.ranges
    assert overflowing(None).every and not overflowing(None).held


def test_a_reconnecting_group_gets_every_listener_that_it_may_have_had():
    held = with_brought(EVERYTHING, Brought.HOLDING, RANGES)
    assert held == Telling(held=True, shared=True, ranges=RANGES)
    on = retold(None, ON, RANGES, TOLD)
    assert with_brought(on, Brought.WHOLE_PORTS, RANGES).shared
    assert with_brought(on, Brought.HOLDING, RANGES) is on and with_brought(on, None, RANGES) is on
    assert with_brought(EVERYTHING, Brought.WHOLE_PORTS, RANGES) is EVERYTHING
    assert with_brought(overflowing(None), Brought.HOLDING, RANGES) == overflowing(None)
