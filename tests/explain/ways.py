"""Counts the outcomes that a request can have at most, from the documents and not from the explanation: from the
weights of destinations, the percentages of faults, and the endpoints of subsets. Checks that an explanation lists
no more, and none twice."""

import json
import math

from explain.asked import NO_PORT, TCP_PORT, TLS_PORT, WEB_PORT


def too_many(told):
    """The defect of the outcomes as a whole; "" if there is none."""
    outcomes = told.explanation.outcomes
    said = []
    if not math.isclose(total := sum(outcome.odds for outcome in outcomes), 1.0, abs_tol=1e-9):
        said.append(f"the odds add up to {total}")
    if any(outcome.odds <= 0 for outcome in outcomes):
        said.append("one never happens")
    if len({outcome.verdict for outcome in outcomes}) < len(outcomes):
        said.append("one is said twice")
    if len(outcomes) > (most := most_ways(told)):
        said.append(f"{len(outcomes)} outcomes are said, and there are {most} ways at most")
    return "; ".join(said)


def most_ways(told):
    """The highest possible number of outcomes; 1 if nothing is random."""
    case, asked = told.case, told.asked
    if asked.caller == "legacy" or asked.port == NO_PORT:
        return 1
    if asked.to != "service" and asked.port != WEB_PORT:  # which is a pod's and a service's, so that the host decides
        return 1
    rule, routing = (_spec(case, kind) for kind in ("DestinationRule", "VirtualService"))
    attached = _spec(case, "HTTPRoute") or _spec(case, "GRPCRoute")
    logged = told.answer.logged.get("route")
    if attached and told.request.is_http and logged != "default":
        itself = [{"name": "SERVICE"}]  # the destination of a case without routes
        refs = [[each["name"] for each in one.get("backendRefs", itself)] for one in attached["rules"]]
        return max(sum({"SERVICE": _behind(case, rule), "deep": 2}.get(name, 1) for name in names) for names in refs)
    if not routing or logged == "default":  # no route applies to this caller
        return _behind(case, rule)
    if not told.request.is_http:
        tcp = routing.get({TCP_PORT: "tcp", TLS_PORT: "tls"}.get(asked.port, ""), ())
        # Connections that no route of this caller matches, or without a server name, go to the service itself.
        return max(sum(_places(each, case, rule) for route in tcp for each in _chosen(route)), _behind(case, rule))
    routes = routing["http"]
    if any("delegate" in route for route in routes):  # the routes of the delegate count, under both names
        inner = [each["spec"]["http"] for each in case.documents if each["metadata"]["name"] == "SERVICE-inner"]
        faults = [route["fault"] for route in routes if "fault" in route]
        leaves = [{"fault": fault, **leaf} for found in inner for leaf in found for fault in (*faults, {})]
        return max(_ways(route, case, rule) for route in (*routes, *leaves))
    return max(_ways(route, case, rule) for route in _taking(routes, logged))


def _taking(routes, logged):
    """The route that Envoy's log names, if the name is unique."""
    named = [each for each in routes if each.get("name") and (logged or "").split(".")[0] == each["name"]]
    return named or [each for each in routes if not each.get("name")] or [{}]


def _ways(route, case, rule):
    delayed, aborted = (route.get("fault", {}).get(each) for each in ("delay", "abort"))
    once = sum(_places(each, case, rule) for each in _chosen(route)) or 1
    share = aborted["percentage"]["value"] if aborted else 0
    after = 1 if share == 100 else once if share == 0 else once + 1
    return after * (2 if delayed and 0 < delayed["percentage"]["value"] < 100 else 1)


def _chosen(route):
    """The destinations of a route, without those of weight 0, each once."""
    listed = route.get("route", ())
    able = [each for each in listed if len(listed) == 1 or each.get("weight", 0) > 0]
    alike = {json.dumps({**each, "weight": 0}, sort_keys=True): each for each in able}
    return alike.values()


def _places(entry, case, rule):
    where = entry["destination"]
    if where["host"] == "deep" and "subset" not in where:
        return 2
    if where["host"] != "SERVICE" or where.get("subset", "all") != "all":
        return 1
    return _behind(case, rule)


def _behind(case, rule):
    """The number of different endpoints of the service: one with a proxy and one without. With locality load
    balancing, only one of them is used."""
    if not rule or "exportTo" in rule or "workloadSelector" in rule:  # the rule may not apply to this caller
        return 1 if case.alone else 2
    policy = rule.get("trafficPolicy", {})
    setting = policy.get("loadBalancer", {}).get("localityLbSetting", {})
    near = "outlierDetection" in policy and setting.get("enabled", True) and "failoverPriority" not in setting
    near = near and not any("portLevelSettings" in each.get("trafficPolicy", {}) for each in (rule, *rule["subsets"]))
    return 1 if case.alone or near else 2


def _spec(case, kind):
    return next((each["spec"] for each in case.documents if each["kind"] == kind), {})
