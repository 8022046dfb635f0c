"""Generates services with every kind of route, policy and mode, and requests that are likely to match them.

Hypothesis gives each case its own random source (`cases`), so that a run can be repeated. Drawing every word from
Hypothesis would take longer than the requests to Envoy.
"""

from hypothesis import strategies as st

from explain.asked import HTTP_PORT, ISSUERS, NO_PORT, OPEN_PORT, TCP_PORT, TLS_PORT, WEB_PORT, Asked, Case
from explain.attached import Attached
from explain.chance import HEADERS, KINDS, VALUES
from explain.policies import Policies
from weft.explain.request import Speaks


def cases(requests=10):
    return st.randoms(use_true_random=True).map(lambda chance: Maker(chance).case(requests))


class Maker(Attached, Policies):
    def case(self, requests):
        rule, *routings = self.destination_rule(), *(self.attached() if self.one_in(4) else self.virtual_services())
        documents = [rule, *routings]
        if routings[0]["kind"] == "VirtualService" and self.one_in(3):
            self.tunnel(rule["spec"], routings[0]["spec"])
        if self.one_in(2):
            documents.append(self.peer_authentication())
        if self.one_in(2):
            documents.append(self.request_authentication())
        documents += [self.authorization_policy(number) for number in range(self.pick(0, 0, 1, 1, 2))]
        if self.one_in(3):
            documents.append(self.service_entry())
        account = self.pick(*["orders"] * 7, "impostor")
        return Case(documents, [self.asked() for _ in range(requests)], self.one_in(2), account)

    def token(self):
        claims = {"where": self.pick(*["header"] * 4, "param", "param", "x-token", "x-prefixed", "cookie")}
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
            "tls",
            "open",
            "no port",
            "plain",
            "outside",
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
                {"caller": caller, "port": TLS_PORT},
                {"caller": caller, "to": "outside", "port": TLS_PORT},
                {"caller": self.pick("legacy", caller), "to": "pod", "port": TLS_PORT},
                {"caller": "legacy", "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
            )
            name = self.pick("orders", "SERVICE", "SERVICE.shop.svc.cluster.local", "outside.SERVICE.example")
            speaks = Speaks.TLS if kind == "tls" else Speaks.BYTES
            return Asked(**where, speaks=speaks, offers=offers, server_name=name)
        if kind == "connect":  # its authority is the target of the tunnel, and it has no path
            where = self.pick(
                {"caller": caller},
                {"caller": caller, "port": OPEN_PORT},
                {"caller": caller, "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
                {"caller": "legacy", "to": "pod", "port": self.pick(HTTP_PORT, OPEN_PORT)},
            )
            sent = [(self.pick(*HEADERS), self.pick(*VALUES)) for _ in range(self.pick(0, 1, 2))]
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
            "outside": {
                "caller": caller,
                "to": "outside",
                "host": self.pick("outside.SERVICE.example", "some.SERVICE.example", "outside.SERVICE.example:80"),
            },
        }[kind]
        sent = [(self.pick(*HEADERS), self.pick(*VALUES)) for _ in range(self.pick(0, 1, 2, 3))]
        for often, name, values in (
            (9, "X-Forwarded-For", ("10.1.2.3", "10.1.2.3, 192.0.2.7", "nonsense", "192.0.2.7")),
            (15, "X-Forwarded-Proto", ("https", "http")),
            (9, "grpc-timeout", ("10S", "20000m", "200000S", "0S", "soon")),
            (15, "X-User", VALUES),
            (2 if kind == "web" else 9, "Content-Type", KINDS),
        ):
            if self.one_in(often):
                sent.append((name, self.pick(*values)))
        method = self.pick(*["GET"] * 6, *["POST"] * 2, "PUT", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE")
        if kind == "preflight":
            method = "OPTIONS"
            sent.append(("Origin", self.pick("https://a.example", "http://a.example")))
            if not self.one_in(4):
                sent.append(("Access-Control-Request-Method", "GET"))
        if kind not in ("preflight", "web") and self.one_in(15) and not any(name == "Content-Type" for name, _ in sent):
            # As a well-behaved client sends it. HTTP/2 between the proxies would remove other spellings, and gRPC
            # responses, whose status is always 200, would be mistaken for success.
            method = "GET"
            sent += [("Connection", "upgrade"), ("Upgrade", self.pick("websocket", "websocket", "tcp", "h2c", "else"))]
        token = self.token() if self.one_in(3) else None
        http2 = where["caller"] != "legacy" and self.one_in(6) and not any(name == "Upgrade" for name, _ in sent)
        if http2:
            return Asked(**where, method=method, path=self.target(), headers=sent, token=token, speaks=Speaks.HTTP2)
        return Asked(**where, **self.plainly(method, where, sent), token=token)

    def plainly(self, method, where, sent):
        """With what HTTP/2 could not carry to the proxy that is asked."""
        path = self.target()
        if self.one_in(20):
            sent.append(("TE", self.pick("trailers", "gzip", "gzip, trailers", "Trailers")))
        if self.one_in(20) and not any(name in ("Upgrade", "Content-Type") for name, _ in sent):
            named = ("x-user", "X-Env,x-user", "te", "x-forwarded-for", "authorization", "host", ":path", "connection")
            sent.append(("Connection", self.pick(*named)))
        if self.one_in(20):
            method = self.pick("FOO", "get", "M-SEARCH", "MSEARCH", "PROPFIND", "QUERY")
        elif self.one_in(30):
            method, path = "OPTIONS", self.pick("*", "*", "**", "*?x=1")
        elif self.one_in(30):
            where["host"] = self.pick("a/b", "a b", "SERVICE.shop/", "%41", "SERVICE@shop", "SERVICE.shop:", "[::1]:80")
        elif self.one_in(30):
            sent.append(("X-Forwarded-Proto", ""))
        elif self.one_in(30):
            sent.append((self.pick("x y", "x=y", "x@y"), "1"))
        return {"method": method, "path": path, "headers": sent}

    def _host(self):
        return self.pick(
            *("", "", "", "SERVICE.shop:80", "SERVICE.SHOP.svc.cluster.local", "SERVICE.shop.svc.cluster.local.:8080"),
            *("SERVICE", "SERVICE:9000", "SERVICE.shop.svc", "nobody.example"),
        )
