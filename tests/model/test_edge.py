from weft.model.edge import narrower


def test_the_narrower_of_two():
    assert narrower("*", "*.a.com") == "*.a.com" == narrower("*.a.com", "*")
    assert narrower("a.com", "b.com") == ""
