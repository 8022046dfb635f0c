"""Tokens, the keys that sign them, and a server that publishes keys."""

import asyncio
import contextlib
import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://login.example.com"
PARTNER = "https://partner.example.org"

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def key_set(**keys):
    """A key set of these keys, by their ids."""
    return json.dumps({"keys": [_public(key, kid) for kid, key in keys.items()]})


def token(key=RSA_KEY, algorithm="RS256", kid="rsa", header=None, **claims):
    """A token, valid unless arguments change it; a claim set to None is left out."""
    claims = {"iss": ISSUER, "sub": "alice", "aud": "orders", "exp": int(time.time()) + 600} | claims
    headers = ({"kid": kid} if kid else {}) | (header or {})
    return jwt.api_jws.encode(
        json.dumps({name: value for name, value in claims.items() if value is not None}).encode(),
        key,
        algorithm,
        headers={"typ": "JWT"} | headers,
    )


def _public(key, kid):
    algorithms = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    kind = next((found for known, found in algorithms.items() if isinstance(key, known)), OKPAlgorithm)
    written = json.loads(kind.to_jwk(key.public_key()))
    return {name: held for name, held in written.items() if name != "key_ops"} | {"kid": kid}


class KeyServer:
    """Serves a key set; its response may change while it runs. A `delay` of None never ends."""

    def __init__(self, body):
        self.body, self.status, self.delay, self.asked, self.port = body, 200, 0, 0, 0

    @contextlib.asynccontextmanager
    async def running(self, tls=None, port=0):
        server = await asyncio.start_server(self._answer, "127.0.0.1", port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            if self.delay is None:
                await reader.read()
            head = f"HTTP/1.1 {self.status} Said\r\nconnection: close\r\ncontent-length: {len(self.body)}\r\n\r\n"
            writer.write(head.encode() + self.body.encode())
            await writer.drain()
        writer.close()
