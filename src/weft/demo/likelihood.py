"""Statistics for observed traffic splits: exact binomial tails, and when a stream of responses changed its mix."""

from __future__ import annotations

import math
from collections.abc import Iterable


def split_probability(hits: int, total: int, share: float) -> float:
    """How likely a result at least this unlikely is, if each of `total` answers is a hit with probability `share`."""
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is no count")
    seen = _log_mass(hits, total, share)
    # Rounding must not push the result itself, or its mirror image, out of its own tail.
    masses = (_log_mass(count, total, share) for count in range(total + 1))
    return min(1.0, sum(math.exp(mass) for mass in masses if mass <= seen + 1e-9))


def change_point(answers: Iterable[tuple[float, bool]], *, before: float, after: float) -> tuple[float, float] | None:
    """When the share of hits went from `before` to `after`: (the likeliest moment, when it was beyond doubt).

    Page's CUSUM: the sum of log likelihood ratios, never below zero. Where it last left zero the change began; past
    ln(10⁶) chance would have to be a million times kinder to the old share than to the new one.
    """
    certain = math.log(1e6)
    evidence, begun = 0.0, 0.0
    for moment, hit in answers:
        if evidence == 0.0:
            begun = moment
        step = math.log(after / before) if hit else math.log((1 - after) / (1 - before))
        evidence = max(0.0, evidence + step)
        if evidence >= certain:
            return begun, moment
    return None


def _log_mass(count: int, total: int, share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0 if count == round(total * share) else -math.inf
    ways = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
    return ways + count * math.log(share) + (total - count) * math.log1p(-share)
