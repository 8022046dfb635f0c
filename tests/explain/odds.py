"""Whether what is left to chance happens as often as was said: which destination of a route a request gets, whether a
fault delays it or answers it. Which endpoint is picked is no matter of chance alone, where others are asked at once."""

import math


def surprise(told):
    """How far what happened is from the odds that were said, in standard deviations: around 0 where they are right, and
    more, the more requests there are, where they are not.

    Requests of one service with the same odds are counted together. Of such a group, the square of the distance between
    how often the likeliest should happen and how often it did is its variance, on average."""
    distance = variance = 0.0
    for number, happened, odds in _counted(told):
        own = number * odds * (1 - odds)
        distance += (happened - number * odds) ** 2 - own
        variance += 2 * own**2 + own * (1 - 6 * odds * (1 - odds))
    return distance / math.sqrt(variance) if variance > 0 else 0.0


def _counted(told):
    """Of each group: how many there were, how many of them went the likeliest way, and the odds of that."""
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
    """What a caller's log tells apart. Of a request that a fault answers, and of a cluster that is not there, it does not
    say where they would have gone."""
    where = "fault" if "FI" in flags else "" if "NC" in flags or cluster == "-" else cluster
    return where, delayed
