"""Keys that a proxy fetches itself, from a server on this machine that starts late, stops, changes its keys and sends
invalid ones."""

import json
import ssl
from datetime import timedelta

import msgspec
import pytest
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext

from authority import Authority
from eventually import eventually
from model.builders import service
from translate.asking import ask, bearer, guarded
from translate.tokens import EC_KEY, ED_KEY, ISSUER, OTHER_KEY, RSA_KEY, KeyServer, key_set
from weft.model.instance import Instance
from weft.model.names import labels_of
from weft.model.request_authentication import JwtRule, RequestAuthentication
from weft.model.request_authentication import KeyServer as WrittenServer

KEYS = key_set(rsa=RSA_KEY, ec=EC_KEY, ed=ED_KEY)
WRONG_SIGNATURE = "Jwt verification fails"


def authentication(*rules):
    return RequestAuthentication("tokens", "shop", rules=rules)


def at(server, scheme="http", host="127.0.0.1", **more):
    uri = f"{scheme}://{host}:{server.port}/keys"
    written = WrittenServer(uri, host, server.port, tls=scheme == "https", **more)
    return JwtRule(ISSUER, key_server=written, timeout=timedelta(seconds=1))


def quickly(document):
    """Keys are fetched again every moment, not every few minutes. Envoy does so 5 s before they are too old."""
    for listener in document.static_resources.listeners:
        for chain in listener.filter_chains:
            for each in chain.filters:
                if each.typed_config.Is(HttpConnectionManager.DESCRIPTOR):
                    each.typed_config.Pack(_quick(HttpConnectionManager.FromString(each.typed_config.value)))


def _quick(manager):
    for each in manager.http_filters:
        if each.typed_config.Is(JwtAuthentication.DESCRIPTOR):
            found = JwtAuthentication.FromString(each.typed_config.value)
            for provider in found.providers.values():
                provider.remote_jwks.cache_duration.FromMilliseconds(5_200)
                provider.remote_jwks.async_fetch.failed_refetch_duration.FromMilliseconds(200)
            each.typed_config.Pack(found)
    return manager


async def until(port, status, *headers):
    """A good token may have to wait for the next fetch."""
    await eventually(lambda: ask(port, headers=headers), lambda value: value.status == status)


async def test_fetched_keys_check_tokens():
    async with KeyServer(KEYS).running() as server, guarded(authentication(at(server))) as port:
        assert (await ask(port)).status == 200
        assert (await ask(port, headers=(bearer(),))).status == 200
        assert (await ask(port, headers=(bearer(OTHER_KEY),))).body == WRONG_SIGNATURE
        for _ in range(20):
            await ask(port, headers=(bearer(),))
        assert server.asked < 10  # once or so for each port, not for each request


async def test_fetched_keys_check_tokens_of_any_issuer_where_the_rule_names_none():
    async with KeyServer(KEYS).running() as server:
        rule = msgspec.structs.replace(at(server), issuer="")
        async with guarded(authentication(rule)) as port:
            assert (await ask(port, headers=(bearer(iss="https://any.example.com"),))).status == 200
            assert (await ask(port, headers=(bearer(OTHER_KEY),))).body == WRONG_SIGNATURE


async def test_new_keys_replace_old_ones():
    async with KeyServer(KEYS).running() as server, guarded(authentication(at(server)), change=quickly) as port:
        assert (await ask(port, headers=(bearer(),))).status == 200
        server.body = key_set(new=OTHER_KEY)
        await until(port, 200, bearer(OTHER_KEY, kid="new"))
        assert (await ask(port, headers=(bearer(),))).status == 401


async def test_tokens_fail_until_the_key_server_is_up():
    server = KeyServer(KEYS)
    async with server.running():
        pass
    async with guarded(authentication(at(server)), change=quickly) as port:
        assert (await ask(port)).status == 200
        answer = await ask(port, headers=(bearer(),))
        assert (answer.status, answer.body) == (401, "Jwks remote fetch is failed")
        async with server.running(port=server.port):
            await until(port, 200, bearer())
        assert (await ask(port, headers=(bearer(),))).status == 200  # the last good keys stay
        assert (await ask(port, headers=(bearer(OTHER_KEY),))).status == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 200),
        ("{}", 200),
        ('{"keys": []}', 200),
        ("<html>", 200),
        (KEYS, 500),
        (KEYS, 302),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}]}), 200),
        (" " * (1 << 20) + KEYS, 200),
    ],
    ids=["nothing", "no keys", "empty", "no JSON", "an error", "a redirect", "a shared secret", "too long"],
)
async def test_a_response_that_is_no_key_set_verifies_no_token(body, status):
    server = KeyServer(body)
    server.status = status
    async with server.running(), guarded(authentication(at(server))) as port:
        assert (await ask(port)).status == 200
        assert (await ask(port, headers=(bearer(),))).status == 401


async def test_a_key_server_that_does_not_respond_times_out():
    server = KeyServer(KEYS)
    server.delay = None
    async with server.running(), guarded(authentication(at(server))) as port:
        assert (await ask(port)).status == 200  # a request without a token does not wait
        assert (await ask(port, headers=(bearer(),))).status == 401


async def test_keys_are_fetched_from_a_service_of_the_mesh():
    host = "keys.shop.svc.cluster.local"
    async with KeyServer(KEYS).running() as server:
        found = authentication(at(server, host=host, meshed=True))
        keys = service("keys", port=server.port, target=server.port)
        async with guarded(found, keys, change=quickly) as port:
            assert (await ask(port, headers=(bearer(),))).status == 401  # the key server is down
        serving = Instance("keys-0", "shop", ("127.0.0.1",), labels_of({"app": "keys"}))
        async with guarded(found, keys, serving) as port:
            await until(port, 200, bearer())


@pytest.fixture
def authority(tmp_path):
    """Gives the roots' file, and a TLS context for a server of any name."""
    made = Authority()
    roots = tmp_path / "roots.pem"
    roots.write_bytes(made.root)

    def serving(name):
        own = made.issue(name)
        file = tmp_path / f"{name}.pem"
        file.write_bytes(own.certificate + own.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    return roots, serving


def trusting(roots):
    """Puts this file in the place of the system's, which no test may change."""

    def change(document):
        for cluster in document.static_resources.clusters:
            if cluster.name.startswith("jwks|"):
                tls = UpstreamTlsContext.FromString(cluster.transport_socket.typed_config.value)
                tls.common_tls_context.validation_context.trusted_ca.filename = str(roots)
                cluster.transport_socket.typed_config.Pack(tls)
        quickly(document)

    return change


async def test_keys_over_tls_are_accepted_only_from_the_configured_host(authority):
    roots, serving = authority
    async with KeyServer(KEYS).running(tls=serving("localhost")) as server:
        found = authentication(at(server, "https", "localhost"))
        async with guarded(found, change=trusting(roots)) as port:
            await until(port, 200, bearer())
        async with guarded(found) as port:  # the system does not trust the authority
            assert (await ask(port, headers=(bearer(),))).status == 401
    async with KeyServer(KEYS).running(tls=serving("evil.example.com")) as server:
        async with guarded(authentication(at(server, "https", "localhost")), change=trusting(roots)) as port:
            assert (await ask(port, headers=(bearer(),))).status == 401
        assert server.asked == 0
