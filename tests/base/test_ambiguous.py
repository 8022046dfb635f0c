from weft.base.ambiguous import in_several_namespaces


def test_every_namespace_is_told_and_names_to_give_instead():
    problem = in_several_namespaces("web", ["shop", "bank", "shop"]).problem
    assert problem.what == "`web` is in several namespaces: bank, shop"
    assert problem.hint == "choose one: bank/web, or shop/web"


def test_of_many_three_are_enough_to_see_how_it_is_said():
    problem = in_several_namespaces("web", "abcde").problem
    assert problem.what == "`web` is in several namespaces: a, b, c, d, e"
    assert problem.hint == "choose one: a/web, or b/web, or c/web"
