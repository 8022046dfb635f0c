"""Checks whether random outcomes occur as often as explained: the destination of a route, and whether a fault delays
or aborts. The choice of an endpoint is not checked, because it is not only random when requests run in parallel."""

import math


def surprise(told):
    """How far the observed results are from the explained odds, in standard deviations: around 0 if the odds are
    right. If they are wrong, it grows with the number of requests.

    Requests of one service with the same odds are counted together. For such a group, the squared difference between
    the expected and the observed number of the likeliest outcome is, on average, its variance.
    """
    distance = variance = 0.0
    for number, happened, odds in _counted(told):
        own = number * odds * (1 - odds)
        distance += (happened - number * odds) ** 2 - own
        variance += 2 * own**2 + own * (1 - 6 * odds * (1 - odds))
    return distance / math.sqrt(variance) if variance > 0 else 0.0


def _counted(told):
    """For each group: the number of requests, how many of them had the likeliest outcome, and the odds of that
    outcome."""
    groups = {}
    for each in told:
        logged = each.answer.logged
        if not logged:
            continue
        said = {}
        for outcome in each.explanation.outcomes:
            way = _way(outcome.verdict.cluster, outcome.verdict.flags, delayed=outcome.verdict.delay > 0)
            said[way] = said.get(way, 0.0) + outcome.odds
        way = _way(logged["cluster"] or "", logged["flags"] or "", delayed="DI" in (logged["flags"] or ""))
        likeliest = max(sorted(said), key=lambda one: round(said[one], 9))
        if len(said) > 1 and way in said:
            group = (id(each.case), tuple(sorted((one, round(odds, 9)) for one, odds in said.items())))
            groups.setdefault(group, []).append(way == likeliest)
    return [(len(found), sum(found), max(odds for _, odds in group[1])) for group, found in groups.items()]


def _way(cluster, flags, *, delayed):
    """The part of an outcome that the caller's access log distinguishes. For a request that a fault aborts, or whose
    cluster is missing, the log does not show the cluster that was chosen."""
    where = "fault" if "FI" in flags else "" if "NC" in flags or cluster == "-" else cluster
    return where, delayed
