"""Generates routes of every kind, and rules for the hosts that they lead to."""

from explain.asked import NETWORK, OPEN_PORT, PLAIN, TCP_PORT, TLS_PORT, WEB_PORT
from explain.chance import HEADERS, ISTIO, KINDS, PATHS, VALUES, Chance, document

EXPRESSIONS = (
    *("/a.*", "/(a|b)/?", "/[a-z]+", "/api/v\\d+(/.*)?", ".*b", "(?i)/A/B", "/a/b?", "/[^/]+", "/[[:alpha:]]+/.*"),
    *("^/a$", "/\\w+", "/a{1,2}", "/a{,2}", "/(?P<x>a)b", "/.{2}", "[/a]+", "/(?:a|ab)/?b?", "\\Q/a\\E.*", "/\\S*"),
)
VALUE_EXPRESSIONS = ("al.*", "[a-z]+", "v\\d", ".+", "(?i)alice", ".*,.*", "\\w*", "[[:upper:]]+")
# None removes the first slash. Envoy rejects the rest. If the protocol is detected, the filter chain that rejects it
# depends on earlier requests over the same connection.
_REWRITES = (
    ("^/a", "/x"),
    ("a+", "-"),
    ("/(\\w+)/(\\w*)", "/\\2/\\1"),
    ("(.)b*", "\\1-"),
    ("(?i)A", "/x"),
    ("(a)|b", "\\1\\0"),
    ("/", "//"),
    ("x?", ""),
)


class Routings(Chance):
    def text_match(self, values, expressions):
        kind = self.pick("exact", "prefix", "regex")
        return {kind: self.pick(*(expressions if kind == "regex" else values))}

    def value_match(self):
        if self.one_in(4):
            return {}
        return self.text_match([value for value in VALUES if value], VALUE_EXPRESSIONS)

    def http_match(self):
        match = {}
        if self.one_in(2):
            odd = self.target().partition("?")[0]
            match["uri"] = self.text_match((*PATHS, odd), EXPRESSIONS)
            if self.one_in(3):
                match["ignoreUriCase"] = True
        if self.one_in(5):
            match["method"] = self.text_match(("GET", "POST", "P"), ("G.*", "POST|PUT"))
        if self.one_in(6):
            match["authority"] = self.text_match(("SERVICE", "SERVICE.shop"), ("SERVICE.*", ".*local"))
        if self.one_in(9):
            match["scheme"] = self.text_match(("http", "https"), ("https?", "h.*s"))
        for field, often in (("headers", 3), ("withoutHeaders", 5)):
            if self.one_in(often):
                match[field] = {name: self.value_match() for name in self.some(HEADERS)}
                if field == "withoutHeaders" and self.one_in(4):
                    match[field][self.pick(*HEADERS)] = {"regex": "*"}
                if self.one_in(6):
                    match[field]["content-type"] = self.text_match(KINDS, ("application/grpc.*", ".*web.*"))
        if self.one_in(4):
            match["queryParams"] = {name: self.value_match() for name in self.some(("x", "page"))}
        if self.one_in(9):
            match["sourceNamespace"] = self.pick("shop", "jobs")
        if self.one_in(12):
            match["sourceLabels"] = {"app": self.pick("frontend", "batch")}
        if self.one_in(12):
            match["gateways"] = ["mesh"]
        if self.one_in(12):
            match["port"] = self.pick(80, OPEN_PORT, WEB_PORT)
        if self.one_in(9):
            match["statPrefix"] = "counted"
        return match or {"uri": {"prefix": self.pick(*PATHS, "")}}

    def headers(self):
        changes = {}
        if self.one_in(2):
            changes["set"] = {name: self.pick("set", "100%%", "a b") for name in self.some((*HEADERS, "x-set"))}
        if self.one_in(2):
            changes["add"] = {name: self.pick("added", "two") for name in self.some((*HEADERS, "x-add"))}
        if self.one_in(3):
            changes["remove"] = self.some(HEADERS)
        made = {"request": changes}
        if self.one_in(4):
            made["response"] = {"set": {"x-said": "set"}, "add": {"x-said": "more"}, "remove": ["server"]}
        return made

    def destinations(self):
        number = self.pick(1, 1, 1, 2, 3)
        weights = [self.pick(0, 1, 50, 100) for _ in range(number)]
        weights[0] = weights[0] if sum(weights) else 1
        found = []
        for weight in weights:
            where = {"host": self.pick(*["SERVICE"] * 9, "missing", "missing", "other", "deep")}
            if not self.one_in(6):
                where["port"] = {"number": self.pick(80, 80, 80, 80, OPEN_PORT, WEB_PORT)}
            if subset := self.pick(None, None, "v1", "v1", "v1", "v2", "none", "all"):
                where["subset"] = subset
            entry = {"destination": where} | ({"weight": weight} if number > 1 else {})
            if self.one_in(5):
                entry["headers"] = self.headers()
                if self.one_in(3):
                    entry["headers"]["request"].setdefault("set", {})["host"] = self.pick("other.example", "SERVICE")
            found.append(entry)
        return found

    def rewrite(self):
        if self.one_in(3):
            match, rewrite = self.pick(*_REWRITES)
            return {"uriRegexRewrite": {"match": match, "rewrite": rewrite}}
        made = {"uri": self.pick("/", "/new", "/new/")} if self.one_in(2) else {}
        if not made or self.one_in(3):
            made["authority"] = self.pick("other.example", "SERVICE")
        return made

    def redirect(self):
        made = self.pick(
            {"uri": self.pick("/there", "/there?own=1")}, {"authority": "there.example"}, {"scheme": "https"}
        )
        if self.one_in(4):
            made["derivePort"] = self.pick("FROM_PROTOCOL_DEFAULT", "FROM_REQUEST_PORT")
        for field, values in (
            ("authority", ("there.example", "there.example:8443")),
            ("scheme", ("http", "https")),
            ("redirectCode", (301, 302, 303, 307, 308)),
            ("port", (80, 8443)),
        ):
            if self.one_in(3) and not (field == "port" and "derivePort" in made):
                made[field] = self.pick(*values)
        return made

    def fault(self):
        made = {}
        if self.one_in(2):
            kind = self.pick({"httpStatus": 400}, {"httpStatus": 418}, {"grpcStatus": "UNAVAILABLE"})
            made["abort"] = kind | {"percentage": {"value": self.pick(0, 0.5, 50, 100, 100)}}
        if not made or self.one_in(3):
            made["delay"] = {"fixedDelay": "0.001s", "percentage": {"value": self.pick(0, 50, 100)}}
        return made

    def retries(self):
        if self.one_in(2):
            return {"attempts": self.pick(0, 1)}
        reasons = self.pick("5xx", "connect-failure,503", "reset,gateway-error", "unavailable")
        made = {"attempts": 1, "retryOn": reasons, "retryRemoteLocalities": self.one_in(2), "backoff": "1ms"}
        return made | self.pick({}, {"perTryTimeout": "10s"}, {"retryIgnorePreviousHosts": False})

    def cors(self):
        made = {"allowOrigins": [self.text_match(("https://a.example", "*"), ("https://.*",))]}
        if self.one_in(2):
            made["unmatchedPreflights"] = self.pick("FORWARD", "IGNORE")
        if self.one_in(2):
            made |= {"allowMethods": ["GET"], "allowHeaders": ["x-user"], "exposeHeaders": ["x-env"], "maxAge": "60s"}
            made["allowCredentials"] = self.one_in(2)
        return made

    def http_route(self, number):
        route = {} if self.one_in(4) else {"name": f"r{number}"}
        if not self.one_in(4):
            route["match"] = [self.http_match() for _ in range(self.pick(1, 1, 2))]
            if self.one_in(2):
                for position, match in enumerate(route["match"]):
                    match["name"] = f"m{position}"
        kind = self.pick(*["route"] * 6, "redirect", "redirect", "direct", "direct", "delegate")
        if kind == "delegate":
            return self.delegating(route)
        if kind != "route":
            for field, often, make in (("headers", 3, self.headers), ("corsPolicy", 4, self.cors)):
                if self.one_in(often):
                    route[field] = make()
        if kind == "redirect":
            return route | {"redirect": self.redirect()}
        if kind == "direct":
            made = {"status": self.pick(200, 201, 204, 302, 404, 503)}
            body = self.pick({}, {"body": {"string": "said"}}, {"body": {"bytes": "c2FpZA=="}})
            return route | {"directResponse": made | body}
        route["route"] = self.destinations()
        for field, often, make in (
            ("rewrite", 3, self.rewrite),
            ("headers", 3, self.headers),
            ("retries", 4, self.retries),
            # The copy goes to a missing host: an application could not distinguish a copy from its original.
            ("mirrors", 9, lambda: [{"destination": {"host": "missing"}, "percentage": {"value": self.pick(10, 100)}}]),
            ("timeout", 9, lambda: "15s"),
            ("corsPolicy", 5, self.cors),
            ("fault", 4, self.fault),
        ):
            if self.one_in(often):
                route[field] = make()
        if "rewrite" not in route and self.one_in(9):
            changes = route.setdefault("headers", {}).setdefault("request", {})
            changes.setdefault("set", {})["host"] = self.pick("other.example", "SERVICE")
        return route

    def delegating(self, route):
        """Delegates to `SERVICE-inner`, whose matches are within these or match nothing."""
        if "match" in route:
            route["match"] = [{"uri": {"prefix": self.pick("/", "/a")}} for _ in route["match"]]
        for field, often, make in (
            ("rewrite", 4, self.rewrite),
            ("headers", 4, self.headers),
            ("fault", 6, self.fault),
        ):
            if self.one_in(often):
                route[field] = make()
        return route | {"delegate": {"name": "SERVICE-inner", "namespace": "shop"}}

    def virtual_services(self):
        routes = [self.http_route(number) for number in range(self.chance.randint(1, 5))]
        spec = {"hosts": ["SERVICE"], "http": routes}
        if self.one_in(3):
            match = {"port": TCP_PORT}
            match |= self.pick(
                *({}, {}, {}, {"sourceNamespace": "jobs"}, {"sourceLabels": {"app": "frontend"}}),
                *({"gateways": ["mesh"]}, {"destinationSubnets": [f"{NETWORK}.0.0/16"]}),
            )
            spec["tcp"] = [{"match": [match], "route": self.destinations_of_bytes(TCP_PORT)}]
        if self.one_in(2):
            names = self.some(("SERVICE", "SERVICE.shop.svc.cluster.local"))
            match = {"port": TLS_PORT, "sniHosts": names}
            spec["tls"] = [{"match": [match], "route": self.destinations_of_bytes(TLS_PORT)}]
        if self.one_in(9):
            spec["exportTo"] = [self.pick(".", "*", "jobs")]
        found = [document(ISTIO, "VirtualService", spec)]
        if any("delegate" in route for route in routes) and not self.one_in(6):
            leaves = [self.http_route(number) for number in range(self.chance.randint(1, 3))]
            leaves = [leaf for leaf in leaves if "delegate" not in leaf] or [{"route": self.destinations()}]
            found.append(document(ISTIO, "VirtualService", {"http": leaves}, "SERVICE-inner"))
        return found

    def destinations_of_bytes(self, port):
        subsets = self.some(("v1", "v2", "none", "all"), 3)
        to = [{"host": "SERVICE", "subset": subset, "port": {"number": port}} for subset in subsets]
        if self.one_in(6):
            to.append({"host": self.pick("other", "deep"), "port": {"number": port}})
        return [{"destination": each, "weight": self.pick(10, 10, 90)} for each in to]

    def destination_rule(self):
        subsets = [{"name": name, "labels": {"version": name}} for name in ("v1", "v2", "none")]
        subsets.append({"name": "all"})
        spec = {"host": "SERVICE", "subsets": subsets}
        if self.one_in(4):
            spec["trafficPolicy"] = {"tls": {"mode": self.pick("DISABLE", "ISTIO_MUTUAL")}}
        if self.one_in(6):
            subsets[0]["trafficPolicy"] = {"tls": {"mode": self.pick("DISABLE", "ISTIO_MUTUAL")}}
        policy = {}
        if self.one_in(3):
            policy["loadBalancer"] = self.pick(
                {"simple": "ROUND_ROBIN"},
                {"simple": "RANDOM"},
                {"simple": "LEAST_REQUEST", "warmup": {"duration": "60s"}},
                {"simple": "PASSTHROUGH"},
                {"consistentHash": {"httpCookie": {"name": "session", "ttl": "60s"}}},
                {"consistentHash": {"httpQueryParameterName": "x", "ringHash": {"minimumRingSize": 64}}},
                {"consistentHash": {"httpHeaderName": self.pick(*HEADERS)}},
                {"consistentHash": {"useSourceIp": True, "maglev": {}}},
            )
        if self.one_in(3):  # near endpoints are preferred; no endpoint is ever ejected here
            policy["outlierDetection"] = {"consecutive5xxErrors": 0}
            share = {"distribute": [{"from": "eu/*", "to": {self.pick("eu/*", "us/*"): 100}}]}
            over = {"failover": [{"from": "eu", "to": "us"}]}
            by_label = {"failoverPriority": [self.pick("topology.kubernetes.io/region", "version=v2", "app")]}
            if setting := self.pick({}, {"enabled": False}, share, over, by_label):
                policy.setdefault("loadBalancer", {"simple": "RANDOM"})["localityLbSetting"] = setting
        if self.one_in(5):
            pool = self.pick(
                {"h2UpgradePolicy": "DO_NOT_UPGRADE"}, {"useClientProtocol": True}, {"maxRequestsPerConnection": 1}
            )
            policy["connectionPool"] = {"http": pool}
            if self.one_in(2):
                policy["connectionPool"]["tcp"] = {"connectTimeout": "50s", "maxConnections": 5000}
        if self.one_in(6):
            policy["retryBudget"] = {"percent": 50, "minRetryConcurrency": 10}
        if policy:
            spec["trafficPolicy"] = {**spec.get("trafficPolicy", {}), **policy}
        if self.one_in(5):  # for one port, in place of all settings of the host
            level = spec if self.one_in(2) else self.pick(*subsets)
            own = self.pick(
                {"tls": {"mode": self.pick("DISABLE", "ISTIO_MUTUAL")}}, {"loadBalancer": {"simple": "RANDOM"}}
            )
            number = self.pick(80, OPEN_PORT, TCP_PORT, WEB_PORT)
            level.setdefault("trafficPolicy", {})["portLevelSettings"] = [{"port": {"number": number}, **own}]
        if self.one_in(6):
            spec |= self.pick(
                {"exportTo": ["."]}, {"exportTo": ["*"]}, {"workloadSelector": {"matchLabels": {"app": "frontend"}}}
            )
        return document(ISTIO, "DestinationRule", spec)

    def service_entry(self):
        """A ServiceEntry for a host outside the mesh, with resolution NONE, or STATIC with an endpoint."""
        hosts = self.pick(["outside.SERVICE.example"], ["outside.SERVICE.example", "*.SERVICE.example"])
        ports = [
            {"number": 80, "name": "http", "protocol": "HTTP"},
            {"number": TLS_PORT, "name": "tls", "protocol": "TLS"},
        ]
        spec = {"hosts": hosts, "addresses": ["OUTSIDE"], "ports": ports, "location": "MESH_EXTERNAL"}
        if self.one_in(3) or len(hosts) > 1:
            spec["resolution"] = "NONE"
        else:
            spec |= {"resolution": "STATIC", "endpoints": [{"address": PLAIN}]}
        return document(ISTIO, "ServiceEntry", spec)

    def tunnel(self, rule, routing):
        """Tunnels TCP in a CONNECT request. The endpoint treats the CONNECT, and the bytes after it, as requests."""
        subset = self.pick(0, 1, 1)
        tunnel = {"protocol": "CONNECT", "targetHost": "far.example", "targetPort": 443}
        rule["subsets"][subset].setdefault("trafficPolicy", {})["tunnel"] = tunnel
        to = {"host": "SERVICE", "subset": rule["subsets"][subset]["name"], "port": {"number": TCP_PORT}}
        routing["tcp"] = [{"match": [{"port": TCP_PORT}], "route": [{"destination": to}]}]
