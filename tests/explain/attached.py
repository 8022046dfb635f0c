"""The Gateway API's routes, attached to a service of the mesh."""

from explain.asked import OPEN_PORT, WEB_PORT
from explain.chance import HEADERS, PATHS, document
from explain.routings import EXPRESSIONS, VALUE_EXPRESSIONS, Routings

_VERSION = "gateway.networking.k8s.io/v1"
_WORDS = ("alice", "al", "v1", "a,b")


class Attached(Routings):
    def attached(self):
        parent = {"group": "", "kind": "Service", "name": "SERVICE"} | self.pick({}, {"port": 80}, {"port": WEB_PORT})
        kind, make = self.pick(("HTTPRoute", self.attached_rule), ("GRPCRoute", self.grpc_rule))
        rules = [make() for _ in range(self.chance.randint(1, 4))]
        return [document(_VERSION, kind, {"parentRefs": [parent], "rules": rules})]

    def grpc_rule(self):
        made = {"backendRefs": [self.backend() for _ in range(self.pick(1, 1, 2))]}
        if not self.one_in(4):
            made["matches"] = [self.grpc_match() for _ in range(self.pick(1, 1, 2))]
        if self.one_in(3):
            made["filters"] = [self.modifier("RequestHeaderModifier")]
        return made

    def grpc_match(self):
        made = {}
        if not self.one_in(3):
            exact = {"service": self.pick("a", "api"), "method": self.pick("b", "v1")}
            one = {self.pick("service", "method"): self.pick("a", "b", "v1")}
            by_regex = {"type": "RegularExpression", "service": self.pick("a|b", "[a-z]+"), "method": ".*"}
            made["method"] = self.pick(exact, exact, one, by_regex)
        if self.one_in(3):
            made["headers"] = [{"name": name, **self.attached_value()} for name in self.some(HEADERS)]
        return made

    def attached_rule(self):
        made = {}
        prefixes = self.one_in(2)
        if not self.one_in(4):
            made["matches"] = [self.attached_match(prefixes) for _ in range(self.pick(1, 1, 2))]
        made["filters"] = [self.modifier("RequestHeaderModifier")] if self.one_in(3) else []
        if self.one_in(5):
            made["filters"].append(self.modifier("ResponseHeaderModifier"))
        if self.one_in(5):
            return made | {"filters": [*made["filters"], self.attached_redirect(prefixes)]}
        if self.one_in(3):
            made["filters"].append(self.attached_rewrite(prefixes))
        if self.one_in(9):
            cors = {"allowOrigins": self.some(("https://a.example", "https://*.example", "*"), 1)}
            made["filters"].append({"type": "CORS", "cors": cors})
        if not self.one_in(9):
            made["backendRefs"] = [self.backend() for _ in range(self.pick(1, 1, 2, 3))]
        return made

    def attached_match(self, prefixes):
        made = {}
        kind = "PathPrefix" if prefixes else self.pick("PathPrefix", "Exact", "RegularExpression")
        if not self.one_in(3):
            value = self.pick(*(EXPRESSIONS if kind == "RegularExpression" else PATHS))
            made["path"] = {"type": kind, "value": value}
        for field, names, often in (("headers", HEADERS, 3), ("queryParams", ("x", "page"), 4)):
            if self.one_in(often):
                made[field] = [{"name": name, **self.attached_value()} for name in self.some(names)]
        if self.one_in(5):
            made["method"] = self.pick("GET", "POST")
        return made

    def attached_value(self):
        if self.one_in(3):
            return {"type": "RegularExpression", "value": self.pick(*VALUE_EXPRESSIONS)}
        return {"value": self.pick(*_WORDS)}

    def modifier(self, kind):
        made = {}
        for field in self.some(("set", "add"), 2):
            names = self.some((*HEADERS, f"x-{field}"))
            made[field] = [{"name": name, "value": self.pick("one", "100%", "a b")} for name in names]
        if self.one_in(3):
            made["remove"] = self.some(HEADERS)
        return {"type": kind, f"{kind[0].lower()}{kind[1:]}": made}

    def path_change(self, prefixes):
        if prefixes and self.one_in(2):
            return {"type": "ReplacePrefixMatch", "replacePrefixMatch": self.pick("/", "/new", "/new/", "/x/y")}
        return {"type": "ReplaceFullPath", "replaceFullPath": self.pick("/", "/full")}

    def attached_redirect(self, prefixes):
        made = {}
        for field, make in (
            ("path", lambda: self.path_change(prefixes)),
            ("scheme", lambda: self.pick("http", "https")),
            ("hostname", lambda: "there.example"),
            ("port", lambda: self.pick(80, 443, 8443)),
            ("statusCode", lambda: self.pick(301, 302, 303, 307, 308)),
        ):
            if self.one_in(2):
                made[field] = make()
        return {"type": "RequestRedirect", "requestRedirect": made}

    def attached_rewrite(self, prefixes):
        made = {"path": self.path_change(prefixes)} if self.one_in(2) else {}
        if not made or self.one_in(3):
            made["hostname"] = "other.example"
        return {"type": "URLRewrite", "urlRewrite": made}

    def backend(self):
        made = {
            "name": self.pick(*["SERVICE"] * 6, "missing", "other", "deep"),
            "port": self.pick(80, 80, 80, OPEN_PORT, 99),
        }
        if self.one_in(2):
            made["weight"] = self.pick(0, 1, 9)
        if self.one_in(5):
            made["filters"] = [self.modifier("RequestHeaderModifier")]
        return made
