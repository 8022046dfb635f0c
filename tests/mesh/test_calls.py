from model.builders import group
from weft.mesh.calls import CallReason, Calls
from weft.model.on_demand import EVERYTHING, Telling

WEB, API = group("web"), group("api")
ONE, TWO, THREE = "10.96.0.1", "10.96.0.2", "10.96.0.3"


def test_a_call_is_recorded_once_with_its_reason_and_time():
    now = iter((5.0, 6.0, 7.0))
    calls = Calls(clock=lambda: next(now))
    assert calls.add(WEB, [ONE])
    assert not calls.add(WEB, [ONE], why=CallReason.HAD)
    assert calls.add(WEB, hosts=["cart"], why=CallReason.LOOKED_UP)
    called = calls.of(WEB)
    assert (called.addresses[ONE].since, called.addresses[ONE].why) == (5.0, CallReason.CALLED)
    assert (called.hosts["cart"].since, called.hosts["cart"].why) == (7.0, CallReason.LOOKED_UP)
    assert not calls.of(API).addresses and API not in calls.groups()


def test_beyond_the_limit_held_calls_are_recorded_and_the_group_gets_everything():
    calls = Calls(most=2)
    calls.add(WEB, [ONE, TWO])
    assert not calls.of(WEB).everything
    assert calls.add(WEB, [THREE], ["cart"])
    assert calls.of(WEB).everything and list(calls.of(WEB).addresses) == [ONE, TWO, THREE]
    assert not calls.of(WEB).hosts, "nobody waits for it"
    assert calls.add(WEB, ["10.96.0.4", "10.96.0.5"])
    assert list(calls.of(WEB).addresses) == [ONE, TWO, THREE, "10.96.0.4"], "but that has an end, too"
    assert not calls.add(WEB, ["10.96.0.5"])


def test_beyond_the_limit_the_groups_longest_without_proxies_are_dropped(monkeypatch):
    monkeypatch.setattr("weft.mesh.calls._MOST_GROUPS", 2)
    calls, third, fourth = Calls(), group("third"), group("fourth")
    for each in (WEB, API, third):
        calls.tell(each, EVERYTHING)
        calls.add(each, [ONE])
    assert set(calls.groups()) == {WEB, API, third}, "each has proxies"
    calls.leave(API)
    calls.leave(WEB)
    calls.add(fourth, [ONE])
    assert set(calls.groups()) == {WEB, third, fourth}
    calls.add(fourth, [TWO])
    assert set(calls.groups()) == {third, fourth}
    calls.tell(fourth, EVERYTHING)
    calls.add(third, [TWO])
    assert set(calls.groups()) == {third, fourth}


def test_the_telling_of_a_group_is_kept_while_it_has_proxies():
    calls, telling = Calls(), Telling(every=False)
    assert calls.telling(WEB) is None
    calls.tell(WEB, telling)
    assert calls.copy().telling(WEB) is telling
    calls.leave(WEB)
    assert calls.telling(WEB) is None


def test_a_copy_is_independent():
    calls = Calls()
    calls.add(WEB, [ONE])
    copy = calls.copy()
    calls.add(WEB, [TWO])
    copy.add(WEB, [THREE])
    assert set(calls.of(WEB).addresses) == {ONE, TWO}
    assert set(copy.of(WEB).addresses) == {ONE, THREE}


def test_a_dns_lookup_beyond_the_limit_does_not_cause_full_config():
    calls = Calls(most=1)
    calls.add(WEB, [ONE])
    calls.add(WEB, hosts=["cart"], why=CallReason.LOOKED_UP)
    assert not calls.of(WEB).everything and not calls.of(WEB).hosts


def test_with_everything_every_group_counts_as_having_called_everything():
    calls = Calls(everything=True)
    assert calls.of(WEB).everything
    calls.add(WEB, [ONE])
    assert calls.of(WEB).everything and calls.copy().of(API).everything
