from decimal import Decimal

import pytest

from weft.inject.quantity import amount, problem_of_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("100m", "0.1"),
        ("128Mi", 128 * 2**20),
        ("1G", 10**9),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        (".5", "0.5"),
    ],
)
def test_reads_quantities_as_kubernetes_writes_them(text, value):
    assert amount(text) == Decimal(value)
    assert problem_of_quantity(text) == ""


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "1gb", "Mi", "1e", "1" * 80, "nan"])
def test_other_texts_are_not_quantities(text):
    assert amount(text) is None
    assert "not an amount" in problem_of_quantity(text)
