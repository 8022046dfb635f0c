from weft.cli.print import moments


def change(name, what="changed", **where):
    return {"object": {"kind": "Service", "namespace": "shop", "name": name}, "what": what, "where": where}


def test_a_moment_lists_the_first_objects_with_their_places_and_counts_the_rest():
    assert moments._changes([change("a", file="shop.yaml", line=3)]) == "Service shop/a changed (shop.yaml:3)"
    many = [change(name) for name in "abcde"]
    assert moments._changes(many).endswith("Service shop/c changed, and 2 more")
