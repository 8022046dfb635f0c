"""Generates policies: which callers must authenticate, and what they may do."""

from explain.asked import HTTP_PORT, ISSUERS, KEYS, OPEN_PORT, PODS, TCP_PORT, TLS_PORT, WEB_PORT
from explain.chance import SECURITY, SELECTOR, Chance, document

_PRINCIPALS = (
    *("cluster.local/ns/shop/sa/frontend", "cluster.local/ns/jobs/sa/batch", "*", "*/sa/frontend"),
    *("cluster.local/ns/shop/*", "other.domain/ns/shop/sa/frontend"),
)


class Policies(Chance):
    def peer_authentication(self):
        modes = ("STRICT", "PERMISSIVE", "DISABLE", "UNSET")
        spec = {"selector": SELECTOR, "mtls": {"mode": self.pick(*modes)}}
        if self.one_in(3):
            spec["portLevelMtls"] = {self.pick(HTTP_PORT, TCP_PORT, WEB_PORT, TLS_PORT): {"mode": self.pick(*modes)}}
        return document(SECURITY, "PeerAuthentication", spec)

    def request_authentication(self):
        rules = []
        for issuer in self.some(ISSUERS):
            entry = {"issuer": issuer, "jwks": KEYS}
            if self.one_in(3):
                entry["audiences"] = self.some(("orders", "other"))
            if self.one_in(3):
                entry["forwardOriginalToken"] = True
            if self.one_in(4):
                entry["fromHeaders"] = [{"name": "x-token"} | self.pick({}, {"prefix": "Token "})]
            if self.one_in(6):
                entry["fromCookies"] = ["session"]
            if self.one_in(8):
                entry["outputPayloadToHeader"] = "x-payload"
            if self.one_in(8):
                entry["spaceDelimitedClaims"] = ["groups"]
            if self.one_in(5):
                entry["fromParams"] = ["access_token"]
            if self.one_in(4):
                entry["outputClaimToHeaders"] = [{"header": "x-sub", "claim": "sub"}]
            if self.one_in(6):
                del entry["issuer"]
                entry["jwksUri"] = "https://keys.example/unused"  # the keys are those in `jwks`
            rules.append(entry)
        return document(SECURITY, "RequestAuthentication", {"selector": SELECTOR, "jwtRules": rules})

    def authorization_policy(self, number):
        action = self.pick("ALLOW", "ALLOW", "ALLOW", "DENY", "DENY", "AUDIT")
        spec = {"selector": SELECTOR, "action": action}
        if rules := [self.rule() for _ in range(self.pick(0, 1, 1, 2, 3) if action == "ALLOW" else self.pick(1, 1, 2))]:
            spec["rules"] = rules
        made = document(SECURITY, "AuthorizationPolicy", spec, f"SERVICE-{number}")
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
            field = self.pick("serviceAccounts", "serviceAccounts", "notServiceAccounts")
            return {field: self.some(("shop/frontend", "jobs/batch", "frontend"))}
        return self._fields(
            principals=_PRINCIPALS,
            namespaces=("shop", "jobs", "sh*", "*"),
            trustDomains=("cluster.local", "cluster*", "*.local", "*", "other.domain"),
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
            ("source.trustDomain", ("cluster.local", "*.domain")),
            ("request.auth.principal", (f"{ISSUERS[0]}/alice", "*")),
            ("request.auth.audiences", ("orders", "other")),
            ("request.auth.claims[groups]", ("admin", "dev*", "*")),
            ("request.auth.claims[role][name]", ("boss",)),
            ("request.auth.claims[scope]", ("read", "write")),
            ("request.auth.claims[iss]", ISSUERS),
            ("request.headers[cookie]", ("*session=*", "other*")),
            ("request.auth.presenter", ("app",)),
            ("destination.ip", (PODS, "10.0.0.0/8")),
            ("destination.port", (str(HTTP_PORT), str(TCP_PORT))),
            ("connection.sni", ("outbound_.80_._.SERVICE.shop.svc.cluster.local", "outbound*", "*")),
        )
        kinds = self.pick(("values",), ("values",), ("notValues",), ("values", "notValues"))
        return {"key": key, **{kind: self.some(values) for kind in kinds}}
