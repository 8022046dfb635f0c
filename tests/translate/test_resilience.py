from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers

from weft.model.destination_rule import RetryBudget
from weft.translate.resilience import limit_retries


def limited(budget, most):
    limits = CircuitBreakers.Thresholds()
    limit_retries(limits, budget, most)
    return limits


def test_a_budget_holds_where_nobody_says_anything():
    found = limited(None, None)
    assert (found.retry_budget.budget_percent.value, found.retry_budget.min_retry_concurrency.value) == (20, 3)
    assert not found.HasField("max_retries")
    assert limited(None, 0) == found


def test_a_written_number_stands_instead_and_a_written_budget_before_it():
    assert limited(None, 6).max_retries.value == 6
    assert not limited(None, 6).HasField("retry_budget")
    both = limited(RetryBudget(50, 1), 6)
    assert (both.retry_budget.budget_percent.value, both.retry_budget.min_retry_concurrency.value) == (50, 1)
