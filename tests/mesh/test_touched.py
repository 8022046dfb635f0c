from weft.mesh.touched import Touched, joined


def test_joined_returns_the_union_of_many_changes():
    one, two = Touched(hosts=frozenset({"a"})), Touched(hosts=frozenset({"b"}), inbound=frozenset({"shop"}))
    assert joined((one, two)) == one | two and joined(()) == Touched()
