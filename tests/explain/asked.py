"""The requests of generated cases, their targets and their results: values that the generators, the rig and the
comparison share."""

import functools
import json
import os
import time
from dataclasses import dataclass, field

import jwt

from translate import tokens
from weft.explain.request import Request, Speaks
from weft.explain.token import read_token

HTTP_PORT, TCP_PORT, OPEN_PORT = 8080, 7000, 9000  # the last is undeclared
WEB_PORT, TLS_PORT = 8090, 8443  # for browsers' gRPC; for the application's own TLS
NO_PORT = 81  # a port of no service
NETWORK = f"127.{16 + os.getpid() % 200}"  # a different network per process, so that parallel runs do not conflict
PODS = f"{NETWORK}.0.0/17"
PLAIN = f"{NETWORK}.255.1"  # a workload without a proxy, behind every service's subset v2 and behind no service at all
NOBODY = f"{NETWORK}.255.2"  # where nothing listens
ISSUERS = (tokens.ISSUER, tokens.PARTNER)
KEYS = tokens.key_set(rsa=tokens.RSA_KEY)


@dataclass
class Asked:
    """One request of a case. `to`: "service", "pod" (its own address), "plain", "outside", or "nobody"."""

    caller: str = "frontend"  # or "legacy", which has no proxy
    to: str = "service"
    port: int = 80
    method: str = "GET"
    path: str = "/"
    host: str = ""  # "": the service's
    headers: list = field(default_factory=list)
    token: dict | None = None
    speaks: Speaks = Speaks.HTTP
    offers: tuple = ()  # ALPN of the application's own TLS
    server_name: str = "orders"

    def carried(self):
        """The path and headers with the token added, and the token as `explain` gets it."""
        path, headers = self.path, [(name, value) for name, value in self.headers]
        if self.token is None:
            return path, headers, ()
        token, where = made_token(self.token), self.token.get("where", "header")
        if where == "param":
            return path + ("&" if "?" in path else "?") + f"access_token={token.text}", headers, (token,)
        placed = {
            "header": ("Authorization", f"Bearer {token.text}"),
            "cookie": ("Cookie", f"other=1; session={token.text}"),
            "x-prefixed": ("x-token", f"Token {token.text}"),
        }
        return path, [*headers, placed.get(where, (where, token.text))], (token,)


@dataclass
class Case:
    """A service's documents, written for the name SERVICE, and the requests to it."""

    documents: list
    asked: list
    alone: bool = False  # without the instance that has no proxy, so that proxies speak HTTP/2 to each other
    account: str = "orders"  # the account that the workload should have; the proxy that responds has `orders`


@dataclass
class Answer:
    status: int = 0  # 0: closed without a response; 200 for bytes that came back
    grpc_status: int = 0
    location: str = ""
    app: list | None = None  # the lines of the request that the application saw
    logged: dict = field(default_factory=dict)
    server_logged: dict = field(default_factory=dict)


@dataclass
class Told:
    case: Case
    asked: Asked
    request: Request
    explanation: object
    answer: Answer
    disagreement: str = ""


def made_token(wanted):
    """A token: `forged`, `malformed`, or signed with the wanted claims."""
    claims = {name: value for name, value in wanted.items() if name not in ("where", "forged", "malformed", "late")}
    claims.setdefault("exp", int(time.time()) + (-600 if wanted.get("late") else 600))
    if wanted.get("malformed"):
        return read_token(wanted["malformed"])
    claims = {"iss": tokens.ISSUER, "sub": "alice", **claims}
    return read_token(_signed(json.dumps(claims, sort_keys=True), bool(wanted.get("forged"))))


@functools.lru_cache(maxsize=4096)
def _signed(claims, forged):
    key = tokens.OTHER_KEY if forged else tokens.RSA_KEY
    return jwt.api_jws.encode(claims.encode(), key, "RS256", headers={"typ": "JWT", "kid": "rsa"})
