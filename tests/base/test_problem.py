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
