from weft.control.push.gather import Gathered, GatherStep, Waiting
from weft.mesh.touched import Touched

HOST, OTHER = frozenset({"a"}), frozenset({"b"})


def test_changes_are_taken_once_and_together():
    gather = GatherStep()
    assert gather.add(Touched(hosts=HOST)) == Waiting(changes=True, endpoints=False)
    assert gather.add(Touched(inbound=frozenset({"shop"}))) == Waiting(changes=True, endpoints=False)
    assert gather.take() == Gathered(Touched(hosts=HOST, inbound=frozenset({"shop"})), frozenset())
    assert gather.take() == Gathered(Touched(), frozenset())


def test_endpoints_of_hosts_that_have_not_changed_themselves_are_apart():
    gather = GatherStep()
    assert gather.add(Touched(endpoints=OTHER)) == Waiting(changes=False, endpoints=True)
    assert gather.add(Touched(hosts=HOST, endpoints=HOST)) == Waiting(changes=True, endpoints=False)
    assert gather.take_endpoints() == OTHER
    assert gather.take() == Gathered(Touched(hosts=HOST, endpoints=HOST), frozenset())


def test_calls_are_gathered_by_group():
    gather = GatherStep()
    gather.add_calls("web", ["10.96.0.1"])
    gather.add_calls("cart", [])
    gather.add_calls("web", ["10.96.0.2"])
    assert gather.take_calls() == {"web": ["10.96.0.1", "10.96.0.2"], "cart": []}
    assert gather.take_calls() == {}
