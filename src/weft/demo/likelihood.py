"""Statistics for observed traffic splits: the exact binomial probability of a split, and the moment at which the split
of a stream of responses changed."""

from __future__ import annotations

import math
from collections.abc import Iterable


def split_probability(hits: int, total: int, share: float) -> float:
    """Return the probability of a result at least as unlikely as `hits` of `total`, if each response is a hit with
    probability `share` (a two-sided exact binomial test)."""
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is not a count")
    seen = _log_mass(hits, total, share)
    # The tolerance keeps rounding from excluding `hits` itself, or the equally likely count on the other side of the
    # mean.
    masses = (_log_mass(count, total, share) for count in range(total + 1))
    return min(1.0, sum(math.exp(mass) for mass in masses if mass <= seen + 1e-9))


def change_point(answers: Iterable[tuple[float, bool]], *, before: float, after: float) -> tuple[float, float] | None:
    """Find the change of the share of hits from `before` to `after` in a stream of responses. Return the likeliest
    moment of the change, and the moment at which the change was certain; None if the share did not change.
    `answers` yields, for each response, its moment and whether it was a hit.

    The method is Page's CUSUM: a sum of log likelihood ratios that never falls below zero. The change began where
    the sum last rose from zero. It is certain at a sum of ln(10⁶): the responses are then a million times likelier
    with the new share than with the old one.
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
