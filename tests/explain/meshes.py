"""Services with every kind of route, policy and mode, and requests that are likely to meet them. Words come from small
sets, so that what is asked often is what was written.

Hypothesis gives each case a source of chance of its own (`cases`) and so keeps a run repeatable; to draw every word from
it would take longer than to ask Envoy.
"""

from hypothesis import strategies as st

from explain.asked import HTTP_PORT, ISSUERS, KEYS, NO_PORT, OPEN_PORT, PODS, TCP_PORT, WEB_PORT, Asked, Case
from weft.explain.request import Speaks

_ISTIO, _SECURITY = "networking.istio.io/v1", "security.istio.io/v1"
_SELECTOR = {"matchLabels": {"app": "SERVICE"}}
_HEADERS = ("x-user", "x-env", "x-long-name")
_VALUES = ("alice", "bob", "al", "ALICE", "v1", "v12", "a,b", "")
_PIECES = (
    *("/", "/", "/", "a", "a", "b", "A", "ab", "v1", "api", "..", ".", "%2F", "%2f", "%5C", "\\", "%2e", "%41", "%7E"),
    *(";v=1", "~", "-", "_", "+", "@", ":", "*", "!", "$", "'", "(", ")", ",", "=", "&", "%20", "%C3%A9", "%zz", "%"),
    *('"', "<", ">", "[", "]", "^", "`", "{", "|", "}", "%3F", "%25", "%5B", "%c3"),
)
_KINDS = (
    *("application/grpc", "application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"),
    *("application/grpc+json", "Application/grpc-web", "application/grpc-web; charset=x", "text/plain"),
)
_PATHS = ("/", "/a", "/a/b", "/A/b", "/ab", "/api/v1", "/api/v1/x", "/a/", "/b", "/a/../b", "//a", "/a%2Fb")
_QUERIES = ("", "", "", "?", "?x=1", "?x=1&x=2", "?page=a&x=", "?x", "?X=1", "?a=b?c&x=v1", "?page=%61", "?x=alice")
_EXPRESSIONS = (
    *("/a.*", "/(a|b)/?", "/[a-z]+", "/api/v\\d+(/.*)?", ".*b", "(?i)/A/B", "/a/b?", "/[^/]+", "/[[:alpha:]]+/.*"),
    *("^/a$", "/\\w+", "/a{1,2}", "/a{,2}", "/(?P<x>a)b", "/.{2}", "[/a]+", "/(?:a|ab)/?b?", "\\Q/a\\E.*", "/\\S*"),
)
_VALUE_EXPRESSIONS = ("al.*", "[a-z]+", "v\\d", ".+", "(?i)alice", ".*,.*", "\\w*", "[[:upper:]]+")
_PRINCIPALS = (
    *("cluster.local/ns/shop/sa/frontend", "cluster.local/ns/jobs/sa/batch", "*", "*/sa/frontend"),
    *("cluster.local/ns/shop/*", "other.domain/ns/shop/sa/frontend"),
)
# None takes the first slash away. Envoy refuses what is left, but on which chain depends on earlier requests over the same
# connection, if first bytes are looked at.
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


def cases(requests=10):
    return st.randoms(use_true_random=True).map(lambda chance: Maker(chance).case(requests))


class Maker:
    def __init__(self, chance):
        self.chance = chance

    def pick(self, *choices):
        return self.chance.choice(choices)

    def one_in(self, number):
        return self.chance.randrange(number) == 0

    def some(self, choices, most=2):
        return self.chance.sample(choices, self.chance.randint(1, min(most, len(choices))))

    def case(self, requests):
        documents = [self.destination_rule(), self.virtual_service()]
        if self.one_in(3):
            self.tunnel(*(each["spec"] for each in documents))
        if self.one_in(2):
            documents.append(self.peer_authentication())
        if self.one_in(2):
            documents.append(self.request_authentication())
        documents += [self.authorization_policy(number) for number in range(self.pick(0, 0, 1, 1, 2))]
        account = self.pick(*["orders"] * 7, "impostor")
        return Case(documents, [self.asked() for _ in range(requests)], self.one_in(2), account)

    def target(self):
        path = self.pick(*_PATHS)
        if self.one_in(3):
            path = "/" + "".join(self.pick(*_PIECES) for _ in range(self.chance.randint(1, 7)))
        return path + self.pick(*_QUERIES)

    def text_match(self, values, expressions):
        kind = self.pick("exact", "prefix", "regex")
        return {kind: self.pick(*(expressions if kind == "regex" else values))}

    def value_match(self):
        if self.one_in(4):
            return {}
        return self.text_match([value for value in _VALUES if value], _VALUE_EXPRESSIONS)

    def http_match(self):
        match = {}
        if self.one_in(2):
            odd = self.target().partition("?")[0]
            match["uri"] = self.text_match((*_PATHS, odd), _EXPRESSIONS)
            if self.one_in(3):
                match["ignoreUriCase"] = True
        if self.one_in(5):
            match["method"] = self.text_match(("GET", "POST", "P"), ("G.*", "POST|PUT"))
        if self.one_in(6):
            match["authority"] = self.text_match(("SERVICE", "SERVICE.shop"), ("SERVICE.*", ".*local"))
        if self.one_in(9):
            match["scheme"] = {"exact": self.pick("http", "https")}
        for field, often in (("headers", 3), ("withoutHeaders", 5)):
            if self.one_in(often):
                match[field] = {name: self.value_match() for name in self.some(_HEADERS)}
                if self.one_in(6):
                    match[field]["content-type"] = self.text_match(_KINDS, ("application/grpc.*", ".*web.*"))
        if self.one_in(4):
            match["queryParams"] = {name: self.value_match() for name in self.some(("x", "page"))}
        if self.one_in(9):
            match["sourceNamespace"] = self.pick("shop", "jobs")
        if self.one_in(12):
            match["port"] = self.pick(80, OPEN_PORT, WEB_PORT)
        if self.one_in(9):
            match["statPrefix"] = "counted"
        return match or {"uri": {"prefix": self.pick(*_PATHS)}}

    def headers(self):
        changes = {}
        if self.one_in(2):
            changes["set"] = {name: self.pick("set", "100%%", "a b") for name in self.some((*_HEADERS, "x-set"))}
        if self.one_in(2):
            changes["add"] = {name: self.pick("added", "two") for name in self.some((*_HEADERS, "x-add"))}
        if self.one_in(3):
            changes["remove"] = self.some(_HEADERS)
        return {"request": changes}

    def destinations(self):
        number = self.pick(1, 1, 1, 2, 3)
        weights = [self.pick(0, 1, 50, 100) for _ in range(number)]
        weights[0] = weights[0] if sum(weights) else 1
        found = []
        for weight in weights:
            where = {"host": self.pick("SERVICE", "SERVICE", "SERVICE", "SERVICE", "missing")}
            where["port"] = {"number": self.pick(80, 80, 80, 80, OPEN_PORT, WEB_PORT)}
            if subset := self.pick(None, "v1", "v1", "v1", "v2", "none"):
                where["subset"] = subset
            entry = {"destination": where} | ({"weight": weight} if number > 1 else {})
            found.append(entry | ({"headers": self.headers()} if self.one_in(5) else {}))
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
        made = {"uri": self.pick("/there", "/there?own=1")}
        for field, values in (
            ("authority", ("there.example", "there.example:8443")),
            ("scheme", ("http", "https")),
            ("redirectCode", (301, 302, 303, 307, 308)),
            ("port", (80, 8443)),
        ):
            if self.one_in(3):
                made[field] = self.pick(*values)
        return made

    def fault(self):
        made = {}
        if self.one_in(2):
            kind = self.pick({"httpStatus": 400}, {"httpStatus": 418}, {"grpcStatus": "UNAVAILABLE"})
            made["abort"] = kind | {"percentage": {"value": self.pick(0, 50, 100, 100)}}
        if not made or self.one_in(3):
            made["delay"] = {"fixedDelay": "0.001s", "percentage": {"value": self.pick(0, 50, 100)}}
        return made

    def retries(self):
        if self.one_in(2):
            return {"attempts": self.pick(0, 1)}
        reasons = self.pick("5xx", "connect-failure,503", "reset,gateway-error", "unavailable")
        return {"attempts": 1, "retryOn": reasons, "retryRemoteLocalities": self.one_in(2), "backoff": "1ms"}

    def cors(self):
        made = {"allowOrigins": [self.text_match(("https://a.example", "*"), ("https://.*",))]}
        if self.one_in(2):
            made["unmatchedPreflights"] = self.pick("FORWARD", "IGNORE")
        return made

    def http_route(self, number):
        route = {} if self.one_in(4) else {"name": f"r{number}"}
        if not self.one_in(4):
            route["match"] = [self.http_match() for _ in range(self.pick(1, 1, 2))]
            if self.one_in(2):
                for position, match in enumerate(route["match"]):
                    match["name"] = f"m{position}"
        kind = self.pick("route", "route", "route", "redirect", "direct")
        if kind == "redirect":
            return route | {"redirect": self.redirect()}
        if kind == "direct":
            made = {"status": self.pick(200, 201, 204, 302, 404, 503)}
            return route | {"directResponse": made | ({"body": {"string": "said"}} if self.one_in(2) else {})}
        route["route"] = self.destinations()
        for field, often, make in (
            ("rewrite", 3, self.rewrite),
            ("headers", 3, self.headers),
            ("retries", 4, self.retries),
            # To nobody: a copy that arrives is told from its original by nothing that an application sees.
            ("mirrors", 9, lambda: [{"destination": {"host": "missing"}}]),
            ("timeout", 9, lambda: "15s"),
            ("corsPolicy", 5, self.cors),
            ("fault", 4, self.fault),
        ):
            if self.one_in(often):
                route[field] = make()
        return route

    def virtual_service(self):
        routes = [self.http_route(number) for number in range(self.chance.randint(1, 5))]
        spec = {"hosts": ["SERVICE"], "http": routes}
        if self.one_in(3):
            spec["tcp"] = [{"match": [{"port": TCP_PORT}], "route": self.tcp_destinations()}]
        return _object(_ISTIO, "VirtualService", spec)

    def tcp_destinations(self):
        hosts = self.some(("v1", "v2", "none"), 3)
        to = [{"host": "SERVICE", "subset": subset, "port": {"number": TCP_PORT}} for subset in hosts]
        return [{"destination": each, "weight": 10} for each in to]

    def destination_rule(self):
        subsets = [{"name": name, "labels": {"version": name}} for name in ("v1", "v2", "none")]
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
                {"consistentHash": {"httpHeaderName": self.pick(*_HEADERS)}},
                {"consistentHash": {"useSourceIp": True, "maglev": {}}},
            )
        if self.one_in(3):  # who is near is called first; nobody is ever ejected here
            policy["outlierDetection"] = {"consecutive5xxErrors": 0}
            share = {"distribute": [{"from": "eu/*", "to": {self.pick("eu/*", "us/*"): 100}}]}
            if setting := self.pick({}, {"enabled": False}, share):
                policy.setdefault("loadBalancer", {"simple": "RANDOM"})["localityLbSetting"] = setting
        if self.one_in(5):
            pool = self.pick(
                {"h2UpgradePolicy": "DO_NOT_UPGRADE"}, {"useClientProtocol": True}, {"maxRequestsPerConnection": 1}
            )
            policy["connectionPool"] = {"http": pool}
        if policy:
            spec["trafficPolicy"] = {**spec.get("trafficPolicy", {}), **policy}
        return _object(_ISTIO, "DestinationRule", spec)

    def tunnel(self, rule, routing):
        """Bytes go into a CONNECT. Whoever is there takes that, and what comes after it, for what he is asked."""
        subset = self.pick(0, 1, 1)
        tunnel = {"protocol": "CONNECT", "targetHost": "far.example", "targetPort": 443}
        rule["subsets"][subset].setdefault("trafficPolicy", {})["tunnel"] = tunnel
        to = {"host": "SERVICE", "subset": rule["subsets"][subset]["name"], "port": {"number": TCP_PORT}}
        routing["tcp"] = [{"match": [{"port": TCP_PORT}], "route": [{"destination": to}]}]

    def peer_authentication(self):
        modes = ("STRICT", "PERMISSIVE", "DISABLE")
        spec = {"selector": _SELECTOR, "mtls": {"mode": self.pick(*modes)}}
        if self.one_in(3):
            spec["portLevelMtls"] = {self.pick(HTTP_PORT, TCP_PORT): {"mode": self.pick(*modes)}}
        return _object(_SECURITY, "PeerAuthentication", spec)

    def request_authentication(self):
        rules = []
        for issuer in self.some(ISSUERS):
            entry = {"issuer": issuer, "jwks": KEYS}
            if self.one_in(3):
                entry["audiences"] = self.some(("orders", "other"))
            if self.one_in(3):
                entry["forwardOriginalToken"] = True
            if self.one_in(4):
                entry["fromHeaders"] = [{"name": "x-token"}]
            if self.one_in(5):
                entry["fromParams"] = ["access_token"]
            if self.one_in(4):
                entry["outputClaimToHeaders"] = [{"header": "x-sub", "claim": "sub"}]
            rules.append(entry)
        return _object(_SECURITY, "RequestAuthentication", {"selector": _SELECTOR, "jwtRules": rules})

    def authorization_policy(self, number):
        action = self.pick("ALLOW", "ALLOW", "ALLOW", "DENY", "DENY", "AUDIT")
        spec = {"selector": _SELECTOR, "action": action}
        if rules := [self.rule() for _ in range(self.pick(0, 1, 1, 2, 3) if action == "ALLOW" else self.pick(1, 1, 2))]:
            spec["rules"] = rules
        made = _object(_SECURITY, "AuthorizationPolicy", spec, f"SERVICE-{number}")
        if self.one_in(8) and action != "AUDIT":
            made["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
        return made

    def rule(self):
        made = {}
        if self.one_in(2):
            made["from"] = [{"source": self.source()} for _ in range(self.pick(1, 1, 2))]
        if self.one_in(2):
            made["to"] = [{"operation": self.operation()} for _ in range(self.pick(1, 1, 2))]
        if self.one_in(2):
            made["when"] = [self.condition() for _ in range(self.pick(1, 1, 2))]
        return made

    def source(self):
        if self.one_in(6):
            return {"serviceAccounts": self.some(("shop/frontend", "jobs/batch"))}
        return self._fields(
            principals=_PRINCIPALS,
            namespaces=("shop", "jobs", "sh*", "*"),
            ipBlocks=("127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "::1"),
            remoteIpBlocks=("127.0.0.1", "10.1.0.0/16", "192.0.2.7"),
            requestPrincipals=(f"{ISSUERS[0]}/alice", f"{ISSUERS[0]}/*", "*", "*/bob", f"{ISSUERS[1]}/*"),
        )

    def operation(self):
        return self._fields(
            hosts=("SERVICE.shop.svc.cluster.local", "SERVICE*", "*.local", "*", "other.example"),
            methods=("GET", "POST", "*"),
            paths=("/", "/a", "/a/b", "/a*", "*b", "/api/*", "*", "/a/{*}", "/{**}/b", "/A", "/x"),
            ports=(str(HTTP_PORT), str(TCP_PORT), str(OPEN_PORT), str(WEB_PORT)),
        )

    def _fields(self, **values):
        made = {}
        for name in self.some(tuple(values)):
            field = f"not{name[0].upper()}{name[1:]}" if self.one_in(3) else name
            made[field] = self.some(values[name])
        return made

    def condition(self):
        key, values = self.pick(
            ("request.headers[x-user]", ("alice", "al*", "*ice", "*")),
            ("request.headers[x-env]", ("v1", "v*")),
            ("request.headers[content-type]", ("application/grpc", "application/grpc-web*", "application/*")),
            ("source.ip", ("127.0.0.1", "10.0.0.0/8")),
            ("remote.ip", ("127.0.0.1", "10.1.0.0/16")),
            ("source.namespace", ("shop", "jobs")),
            ("source.principal", _PRINCIPALS),
            ("request.auth.principal", (f"{ISSUERS[0]}/alice", "*")),
            ("request.auth.audiences", ("orders", "other")),
            ("request.auth.claims[groups]", ("admin", "dev*", "*")),
            ("request.auth.claims[role][name]", ("boss",)),
            ("request.auth.claims[scope]", ("read", "write")),
            ("request.auth.presenter", ("app",)),
            ("destination.ip", (PODS, "10.0.0.0/8")),
            ("destination.port", (str(HTTP_PORT), str(TCP_PORT))),
            ("connection.sni", ("outbound_.80_._.SERVICE.shop.svc.cluster.local", "outbound*", "*")),
        )
        kinds = self.pick(("values",), ("values",), ("notValues",), ("values", "notValues"))
        return {"key": key, **{kind: self.some(values) for kind in kinds}}

    def token(self):
        claims = {"where": self.pick("header", "header", "param", "x-token")}
        claims |= self.pick(
            *({}, {}, {"iss": ISSUERS[1]}, {"iss": "https://nobody.example"}, {"sub": "bob"}),
            *(
                {"forged": True},
                {"malformed": self.pick("not.a.token", "one.two", "e30.e30.e30", "e30.YQ.e30")},
                {"late": True},
            ),
        )
        for name, values in (
            ("aud", ("orders", ["orders", "x"], "other")),
            ("groups", ("admin", ["developers", "x"], ["x"])),
            ("role", ({"name": "boss"},)),
            ("scope", ("read", "read write")),
            ("azp", ("app",)),
        ):
            if self.one_in(2):
                claims[name] = self.pick(*values)
        return claims

    def asked(self):
        kind = self.pick(
            *["service"] * 12,
            *["web"] * 3,
            "direct",
            "direct",
            "bytes",
            "bytes",
            "tls",
            "open",
            "no port",
            "plain",
            "pod",
            "preflight",
            "connect",
        )
        caller = self.pick("frontend", "frontend", "frontend", "batch")
        if kind in ("bytes", "tls"):
            offers = self.pick((), ("h2", "http/1.1"), ("istio",)) if kind == "tls" else ()
            where = self.pick(
                {"caller": caller, "port": TCP_PORT},
                {"caller": "legacy", "to": "pod", "port": TCP_PORT},
                {"caller": caller, "to": "pod", "port": TCP_PORT},
                {"caller": caller, "port": OPEN_PORT},
                {"caller": caller, "port": NO_PORT},
                {"caller": "legacy", "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
            )
            return Asked(**where, speaks=Speaks.TLS if kind == "tls" else Speaks.BYTES, offers=offers)
        if kind == "connect":  # its authority is where the tunnel should lead, and it has no path
            where = self.pick(
                {"caller": caller},
                {"caller": caller, "port": OPEN_PORT},
                {"caller": caller, "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
                {"caller": "legacy", "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
            )
            sent = [(self.pick(*_HEADERS), self.pick(*_VALUES)) for _ in range(self.pick(0, 1, 2))]
            return Asked(**where, method="CONNECT", host=self.pick("far.example:443", "SERVICE.shop:80"), headers=sent)
        where = {
            "service": {"caller": caller, "host": self._host()},
            "web": self.pick(
                {"caller": caller, "port": WEB_PORT, "host": self._host()},
                {"caller": self.pick("legacy", caller), "to": "pod", "port": WEB_PORT},
            ),
            "preflight": {"caller": caller, "port": self.pick(80, 80, WEB_PORT)},
            "open": {"caller": caller, "port": OPEN_PORT},
            "no port": {"caller": caller, "port": NO_PORT},
            "direct": {"caller": "legacy", "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
            "pod": {"caller": caller, "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
            "plain": {"caller": caller, "to": "plain", "host": "elsewhere.example"},
        }[kind]
        sent = [(self.pick(*_HEADERS), self.pick(*_VALUES)) for _ in range(self.pick(0, 1, 2, 3))]
        for often, name, values in (
            (9, "X-Forwarded-For", ("10.1.2.3", "10.1.2.3, 192.0.2.7", "nonsense", "192.0.2.7")),
            (15, "X-Forwarded-Proto", ("https", "http")),
            (2 if kind == "web" else 9, "Content-Type", _KINDS),
        ):
            if self.one_in(often):
                sent.append((name, self.pick(*values)))
        method = self.pick("GET", "GET", "GET", "POST", "PUT", "HEAD")
        if kind == "preflight":
            method = "OPTIONS"
            sent.append(("Origin", self.pick("https://a.example", "http://a.example")))
            if not self.one_in(4):
                sent.append(("Access-Control-Request-Method", "GET"))
        if kind not in ("preflight", "web") and self.one_in(15) and not any(name == "Content-Type" for name, _ in sent):
            # As a well-behaved client asks; of other spellings HTTP/2 on the way would leave nothing, and gRPC's answers,
            # whose status is always 200, would be taken for consent.
            method = "GET"
            sent += [("Connection", "upgrade"), ("Upgrade", self.pick("websocket", "websocket", "tcp", "h2c", "else"))]
        token = self.token() if self.one_in(3) else None
        return Asked(**where, method=method, path=self.target(), headers=sent, token=token)

    def _host(self):
        return self.pick(
            "", "", "SERVICE.shop:80", "SERVICE.SHOP.svc.cluster.local", "SERVICE.shop.svc.cluster.local.:8080"
        )


def _object(version, kind, spec, name="SERVICE"):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}
