from weft.model.edge import narrower


def test_narrower_returns_the_narrower_of_two_hosts():
    assert narrower("*", "*.a.com") == "*.a.com" == narrower("*.a.com", "*")
    assert narrower("a.com", "b.com") == ""
