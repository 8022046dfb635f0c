from weft.mesh.touched import Touched, joined


def test_what_many_changes_touched_is_told_at_once():
    one, two = Touched(hosts=frozenset({"a"})), Touched(hosts=frozenset({"b"}), inbound=frozenset({"shop"}))
    assert joined((one, two)) == one | two and joined(()) == Touched()
