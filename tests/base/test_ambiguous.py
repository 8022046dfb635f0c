from weft.base.ambiguous import in_several_namespaces


def test_the_error_lists_every_namespace_and_names_to_use_instead():
    problem = in_several_namespaces("web", ["shop", "bank", "shop"]).problem
    assert problem.what == "`web` is in several namespaces: bank, shop"
    assert problem.hint == "choose one: bank/web, or shop/web"


def test_the_hint_shows_at_most_three_names():
    problem = in_several_namespaces("web", "abcde").problem
    assert problem.what == "`web` is in several namespaces: a, b, c, d, e"
    assert problem.hint == "choose one: a/web, or b/web, or c/web"
