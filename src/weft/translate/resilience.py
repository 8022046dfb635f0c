"""What holds by itself so that trouble does not grow: how many retries a cluster may have under way. Pure functions
that the builders of clusters and routes call."""

from __future__ import annotations

from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers

from weft.model.destination_rule import RetryBudget

# A fifth of what is under way, and three in any case: enough for a pod that ends, too little for a storm.
DEFAULT_BUDGET = RetryBudget()


def limit_retries(limits: CircuitBreakers.Thresholds, written: RetryBudget | None, most: int | None) -> None:
    """By the budget that a rule has; else by the number that it has (`maxRetries`, 0 is none); else by the default
    budget. Envoy looks at no number beside a budget."""
    if written is None and most:
        limits.max_retries.value = most
        return
    budget = written or DEFAULT_BUDGET
    limits.retry_budget.budget_percent.value = budget.percent
    limits.retry_budget.min_retry_concurrency.value = budget.minimum
