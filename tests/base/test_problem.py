from weft.base.problem import Problem, Severity, Where


def test_reads_as_place_severity_what_and_hint():
    where = Where("mesh/payments.yaml", 12, "VirtualService shop/payments", "spec.http[0].retires")
    problem = Problem(where, "unknown field `retires`", "did you mean `retries`?")
    assert str(problem) == (
        "mesh/payments.yaml:12: VirtualService shop/payments: spec.http[0].retires: "
        "error: unknown field `retires` (hint: did you mean `retries`?)"
    )


def test_leaves_out_what_is_unknown():
    assert str(Problem(Where(), "no route", severity=Severity.WARNING)) == "warning: no route"


def test_a_check_is_named_by_its_code():
    problem = Problem(Where(object="Service shop/web"), "nobody", "", Severity.INFO, "WFT0301")
    assert str(problem) == "Service shop/web: info [WFT0301]: nobody"


def test_severities_have_an_order():
    assert sorted(Severity, key=lambda each: each.weight) == [Severity.INFO, Severity.WARNING, Severity.ERROR]
