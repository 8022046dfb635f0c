"""The fields of access logs, written by a real Envoy wherever a request or a connection is needed."""

import asyncio
import contextlib
import json
import ssl
import tempfile
from pathlib import Path

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StderrAccessLog, StdoutAccessLog
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext, UpstreamTlsContext
from google.protobuf.json_format import ParseDict
from tools.ports import free_port

from authority import Authority
from eventually import eventually
from translate.live import app, running
from weft.model.access_log import Encoding, FileLog, Reporter
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Operation
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.peer_authentication import PeerModes, TlsMode
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.access_log import access_logs, connection_logs, listener_logs, own_answers
from weft.translate.authorization import ASKED, DRY_RUN_DENY
from weft.translate.chains import bytes_to, chain
from weft.translate.clusters import fixed, inbound
from weft.translate.inbound import virtual_inbound
from weft.translate.protos import packed, socket_address
from weft.translate.tls import BYTES
from weft.translate.tls import HTTP1 as HTTP
from weft.translate.view import GroupView

PLACES = {
    "/dev/stdout": ("envoy.access_loggers.stdout", StdoutAccessLog),
    "/dev/stderr": ("envoy.access_loggers.stderr", StderrAccessLog),
    "/var/log/mesh.log": ("envoy.access_loggers.file", FileAccessLog),
}
CALLER = "spiffe://cluster.local/ns/shop/sa/web"
ISTIO = (  # the fields of Istio's line, by name and in order
    *("start_time", "method", "path", "protocol", "response_code", "response_flags", "response_code_details"),
    *("connection_termination_details", "upstream_transport_failure_reason", "bytes_received", "bytes_sent"),
    *("duration", "upstream_service_time", "x_forwarded_for", "user_agent", "request_id", "authority"),
    *("upstream_host", "upstream_cluster", "upstream_local_address", "downstream_local_address"),
    *("downstream_remote_address", "requested_server_name", "route_name"),
)


def _log(path, **written):
    (log,) = access_logs(Settings(logs=(FileLog(path, **written),)))
    name, kind = PLACES[path]
    assert log.name == name
    return kind.FromString(log.typed_config.value)


def test_there_is_no_access_log_unless_configured():
    for logs in (access_logs, connection_logs, listener_logs):
        assert logs(Settings()) == ()


def test_the_standard_streams_are_envoys_own_and_other_paths_are_files():
    assert _log("/var/log/mesh.log").path == "/var/log/mesh.log"
    for path, (_, kind) in PLACES.items():
        (log,) = access_logs(Settings(logs=(FileLog(path),)))
        assert log.typed_config.Is(kind.DESCRIPTOR)


@pytest.mark.parametrize("path", PLACES)
def test_text_and_json_formats_have_defaults_and_may_be_configured(path):
    assert "%RESPONSE_FLAGS%" in _log(path).log_format.text_format_source.inline_string
    assert _log(path, format="%PROTOCOL%\n").log_format.text_format_source.inline_string == "%PROTOCOL%\n"
    labels = _log(path, encoding=Encoding.JSON).log_format.json_format
    assert set(ISTIO) < set(labels.keys())
    written = _log(path, encoding=Encoding.JSON, format='{"code": "%RESPONSE_CODE%"}', omit_empty=True).log_format
    assert dict(written.json_format) == {"code": "%RESPONSE_CODE%"}
    assert written.omit_empty_values


def test_a_command_that_needs_an_extension_gets_it():
    (formatter,) = _log("/dev/stdout", format="%REQ_WITHOUT_QUERY(:PATH)%\n").log_format.formatters
    assert formatter.name == "envoy.formatter.req_without_query"


def _line(log):
    return StdoutAccessLog.FromString(log.typed_config.value).log_format.text_format_source.inline_string


def test_connection_logs_have_network_rbac_results_and_request_logs_http_rbac_results():
    for logs, kind in ((access_logs, "http"), (connection_logs, "network")):
        (log,) = logs(Settings(logs=(FileLog(),)), frozenset({DRY_RUN_DENY}))
        assert f"envoy.filters.{kind}.rbac:istio_dry_run_deny_shadow_engine_result" in _line(log)


def test_a_line_of_text_has_only_fields_that_can_have_a_value_there():
    (called,) = access_logs(Settings(logs=(FileLog(),), reporter=Reporter.SERVER), frozenset({"", ASKED, f"{ASKED}1_"}))
    assert " policy=" in _line(called) and " downstream_peer=" in _line(called)
    assert f' asked_policy_2="%DYNAMIC_METADATA(envoy.filters.http.rbac:{ASKED}1_shadow_effective_policy_id)%' in _line(
        called
    )
    assert "dry_run" not in _line(called) and "upstream_peer" not in _line(called)
    (calls,) = access_logs(Settings(logs=(FileLog(),), reporter=Reporter.CLIENT))
    assert _line(calls).endswith(' %ROUTE_NAME% upstream_peer="%UPSTREAM_PEER_URI_SAN%"\n')
    (unguarded,) = listener_logs(Settings(logs=(FileLog(),), reporter=Reporter.SERVER))
    assert "policy" not in _line(unguarded)


def test_json_has_the_same_names_everywhere():
    log = FileLog("/dev/stdout", Encoding.JSON)
    names = set()
    for reporter in (Reporter.CLIENT, Reporter.SERVER):
        (entry,) = access_logs(Settings(logs=(log,), reporter=reporter))
        names.add(frozenset(StdoutAccessLog.FromString(entry.typed_config.value).log_format.json_format.keys()))
    (only,) = names
    assert {"policy", "asked_policy", "dry_run_deny", "upstream_peer", "downstream_peer"} < only


def test_listeners_log_only_connections_that_reach_no_filter():
    (outbound,) = listener_logs(Settings(logs=(FileLog(),), reporter=Reporter.CLIENT))
    assert list(outbound.filter.response_flag_filter.flags) == ["NR"]
    (received,) = listener_logs(Settings(logs=(FileLog(filter="true"),), reporter=Reporter.SERVER))
    refused, asked = received.filter.and_filter.filters
    assert len(refused.or_filter.filters) == 2 and asked.HasField("extension_filter")
    assert listener_logs(Settings(logs=(FileLog(),), listener_logs=False)) == ()


def test_the_proxys_own_responses_are_counted_only_where_no_upstream_counts_them():
    flagged, marked = own_answers().filter.or_filter.filters
    assert list(flagged.response_flag_filter.flags) == ["FI", "NR", "NC"]
    # Else every request without the mark would be counted.
    assert marked.metadata_filter.HasField("match_if_key_not_found")
    assert not marked.metadata_filter.match_if_key_not_found.value


# A real proxy before a real workload


class Certificates:
    """In files, as Envoy and Python's TLS read them."""

    def __init__(self, directory, root="root"):
        self.directory = Path(directory)
        self._authority = Authority()
        self.root = self._write(f"{root}.pem", self._authority.root)

    def issue(self, name, uri):
        made = self._authority.issue(uri)
        return self._write(f"{name}.pem", made.certificate), self._write(f"{name}.key", made.key)

    def _write(self, name, text):
        (self.directory / name).write_bytes(text)
        return str(self.directory / name)


class Rig:
    def __init__(self, port, file, certificates, words=()):
        self.port, self._file, self.certificates, self._words = port, Path(file), certificates, words

    async def call(self, path="/", *, tls=True, certificate=None):
        """The response; empty if the connection is rejected."""
        context = None
        if tls:
            context = ssl.create_default_context(cafile=self.certificates.root)
            context.check_hostname = False
            context.set_alpn_protocols(self._words)
            if certificate:
                context.load_cert_chain(*certificate)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: orders\r\nconnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        except OSError:
            return b""
        return answer

    async def lines(self, count):
        """The log lines, as soon as there are `count` of them; fails if there are more."""
        text = await eventually(
            lambda: self._file.read_text() if self._file.exists() else "", lambda text: text.count("\n") >= count
        )
        lines = text.splitlines()
        assert len(lines) == count, lines
        return [json.loads(line) if line.startswith("{") else line for line in lines]


def _received(log, port, app_port, protocol, certificates, policies, mode):
    """virtualInbound as translation makes it, with certificates from files instead of an agent."""
    settings = Settings(logs=(log,), reporter=Reporter.SERVER)
    ports = (InboundPort(port, protocol, default_endpoint=f"127.0.0.1:{app_port}"),)
    view = GroupView(
        ProxyKind.SIDECAR,
        ports,
        OutboundPolicy.ALLOW_ANY,
        Settings(),
        modes=PeerModes(mode),
        authorization=policies,
        called=settings,
    )
    listener = Listener.FromString(virtual_inbound(view).body)
    certificate, key = certificates.issue("orders", "spiffe://cluster.local/ns/shop/sa/orders")
    context = {
        "require_client_certificate": True,
        "common_tls_context": {
            "tls_certificates": [{"certificate_chain": {"filename": certificate}, "private_key": {"filename": key}}],
            "validation_context": {"trusted_ca": {"filename": certificates.root}},
        },
    }
    for each in listener.filter_chains:
        if each.HasField("transport_socket"):
            each.transport_socket.typed_config.CopyFrom(packed(ParseDict(context, DownstreamTlsContext())))
    del listener.additional_addresses[:]
    listener.address.CopyFrom(socket_address("127.0.0.1", port))
    return listener, (*fixed(settings), *inbound(ports[0], settings))


@contextlib.asynccontextmanager
async def received(*policies, protocol=Protocol.HTTP, mode=TlsMode.STRICT, **written):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        writer.close()

    with tempfile.TemporaryDirectory() as directory:
        certificates = Certificates(directory)
        log = FileLog(f"{directory}/access.log", **written)
        port = free_port()
        async with app(answer) as app_port:
            listener, clusters = _received(log, port, app_port, protocol, certificates, policies, mode)
            async with running([listener], clusters, listening=()):
                rig = Rig(port, log.path, certificates, HTTP if protocol is Protocol.HTTP else BYTES)
                await _up(port)
                yield rig


async def _up(port):
    """Wait until the port is bound, without a connection, which could be logged."""
    await eventually(lambda: f"0100007F:{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text())


def policy(name, action, *paths, **more):
    rules = (AuthorizationRule(operations=(Operation(paths=paths),)),) if paths else (AuthorizationRule(),)
    return AuthorizationPolicy(name, "shop", action, rules=rules, **more)


SECRET = policy("p", Action.DENY, "/secret*")
TRIED = policy("dry", Action.DENY, "/dry", dry_run=True)
EVERYBODY = policy("all", Action.ALLOW)


async def test_a_text_line_has_the_caller_its_certificates_start_and_the_denying_policy():
    async with received(SECRET, EVERYBODY) as rig:
        caller = rig.certificates.issue("web", CALLER)
        assert b"200 OK" in await rig.call("/hello", certificate=caller)
        assert b"403 Forbidden" in await rig.call("/secret", certificate=caller)
        allowed, denied = await rig.lines(2)
    assert '"GET /hello HTTP/1.1" 200 - via_upstream - "-" 0 2 ' in allowed
    assert "inbound|" in allowed and " default downstream_peer=" in allowed, "the route is the last field of Istio's"
    assert f'downstream_peer="{CALLER}" downstream_peer_cert_start="20' in allowed
    assert ' policy="ns[shop]-policy[all]-rule[0]"' in allowed
    assert '"GET /secret HTTP/1.1" 403 - rbac_access_denied_matched_policy[ns[shop]-policy[p]-rule[0]] ' in denied
    assert ' policy="ns[shop]-policy[p]-rule[0]"' in denied


async def test_a_json_line_has_the_same_and_the_result_of_a_dry_run():
    async with received(SECRET, TRIED, encoding=Encoding.JSON) as rig:
        caller = rig.certificates.issue("web", CALLER)
        await rig.call("/dry", certificate=caller)
        await rig.call("/secret", certificate=caller)
        dry, denied = await rig.lines(2)
    assert set(ISTIO) < dry.keys()
    assert (dry["response_code"], dry["downstream_peer"]) == (200, CALLER)
    assert isinstance(dry["duration"], int)
    assert (dry["dry_run_deny"], dry["dry_run_deny_policy"]) == ("denied", "ns[shop]-policy[dry]-rule[0]")
    assert (dry["dry_run_allow"], dry["audit_policy"], dry["upstream_peer"]) == (None, None, None)
    assert denied["response_code_details"] == "rbac_access_denied_matched_policy[ns[shop]-policy[p]-rule[0]]"
    assert denied["policy"] == "ns[shop]-policy[p]-rule[0]"


async def test_an_audit_policy_is_named_and_decides_nothing():
    async with received(policy("seen", Action.AUDIT, "/seen"), EVERYBODY, encoding=Encoding.JSON) as rig:
        caller = rig.certificates.issue("web", CALLER)
        for asked in ("/seen", "/other"):
            await rig.call(asked, certificate=caller)
        seen, other = await rig.lines(2)
    assert (seen["audit_policy"], other["audit_policy"]) == ("ns[shop]-policy[seen]-rule[0]", None)
    assert seen["policy"] == other["policy"] == "ns[shop]-policy[all]-rule[0]"


async def test_only_requests_that_match_the_expression_are_logged():
    async with received(SECRET, filter="response.code >= 400") as rig:
        caller = rig.certificates.issue("web", CALLER)
        for asked in ("/hello", "/secret", "/hello"):
            await rig.call(asked, certificate=caller)
        await rig.call("/secret/more", certificate=caller)
        assert ['"GET /secret' in line for line in await rig.lines(2)] == [True, True]


# An HTTP connection manager logs no line for these connections; a TCP proxy would log a second one.
@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP])
async def test_each_connection_that_the_listener_rejects_is_one_line_with_the_reason(protocol):
    async with received(protocol=protocol, encoding=Encoding.JSON) as rig:
        stranger = Certificates(rig.certificates.directory, root="other").issue("stranger", CALLER)
        assert await rig.call() == b""
        (unknown,) = await rig.lines(1)
        assert await rig.call(certificate=stranger) == b""
        _, wrong = await rig.lines(2)
        assert await rig.call(tls=False) == b""
        *_, plain = await rig.lines(3)
        assert b"200 OK" in await rig.call(certificate=rig.certificates.issue("web", CALLER))
        *_, allowed = await rig.lines(4)
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in unknown["downstream_transport_failure_reason"]
    assert "CERTIFICATE_VERIFY_FAILED" in wrong["downstream_transport_failure_reason"]
    assert (plain["response_flags"], plain["response_code_details"]) == ("NR", "filter_chain_not_found")
    assert (allowed["downstream_peer"], allowed["downstream_transport_failure_reason"]) == (CALLER, None)


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP])
async def test_accepted_plaintext_is_one_line_and_no_rejection(protocol):
    async with received(protocol=protocol, encoding=Encoding.JSON, mode=TlsMode.PERMISSIVE) as rig:
        assert b"200 OK" in await rig.call(tls=False)
        assert b"200 OK" in await rig.call(certificate=rig.certificates.issue("web", CALLER))
        plain, mutual = await rig.lines(2)
    assert plain["upstream_cluster"] == mutual["upstream_cluster"] == f"inbound|{rig.port}||"
    assert (plain["downstream_peer"], mutual["downstream_peer"]) == (None, CALLER)


async def test_a_denied_connection_is_logged_with_its_policy():
    async with received(policy("p", Action.DENY), protocol=Protocol.TCP, encoding=Encoding.JSON) as rig:
        await rig.call(certificate=rig.certificates.issue("web", CALLER))
        (denied,) = await rig.lines(1)
    assert denied["connection_termination_details"] == "rbac_access_denied_matched_policy[ns[shop]-policy[p]-rule[0]]"


async def test_a_connection_is_logged_with_the_result_of_a_dry_run():
    tried = policy("dry", Action.ALLOW, dry_run=True)
    async with received(tried, protocol=Protocol.TCP, encoding=Encoding.JSON) as rig:
        await rig.call(certificate=rig.certificates.issue("web", CALLER))
        (line,) = await rig.lines(1)
    assert (line["dry_run_allow"], line["dry_run_allow_policy"]) == ("allowed", "ns[shop]-policy[dry]-rule[0]")


@contextlib.asynccontextmanager
async def calling(port, root, certificate, file):
    """A caller's proxy in front of a TLS server, which the proxy accepts only if `root` has signed its certificate."""
    settings = Settings(logs=(FileLog(file, Encoding.JSON),), reporter=Reporter.CLIENT)
    context = {
        "common_tls_context": {
            "tls_certificates": [
                {"certificate_chain": {"filename": certificate[0]}, "private_key": {"filename": certificate[1]}}
            ],
            "validation_context": {"trusted_ca": {"filename": root}},
        },
    }
    cluster = Cluster(name="orders", type=Cluster.STATIC)
    cluster.connect_timeout.seconds = 5
    cluster.load_assignment.cluster_name = "orders"
    place = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
    place.address.CopyFrom(socket_address("127.0.0.1", port))
    cluster.transport_socket.name = "envoy.transport_sockets.tls"
    cluster.transport_socket.typed_config.CopyFrom(packed(ParseDict(context, UpstreamTlsContext())))
    own = free_port()
    listener = Listener(name="calls", address=socket_address("127.0.0.1", own))
    listener.filter_chains.append(chain("", bytes_to((("orders", 1),), settings)))
    async with running([listener], [cluster]):
        yield own


async def test_a_callers_proxy_logs_the_servers_identity_or_why_it_was_rejected(tmp_path):
    async with received(protocol=Protocol.TCP, encoding=Encoding.JSON) as served:
        caller = served.certificates.issue("web", CALLER)
        strange = Certificates(tmp_path, root="other").root
        for root, file in ((served.certificates.root, "met"), (strange, "strange")):
            async with calling(served.port, root, caller, str(tmp_path / file)) as port:
                await _up(port)
                rig = Rig(port, tmp_path / file, served.certificates)
                assert (b"200 OK" in await rig.call(tls=False)) is (file == "met")
                (line,) = await rig.lines(1)
            if file == "met":
                assert line["upstream_peer"] == "spiffe://cluster.local/ns/shop/sa/orders"
            else:
                assert "CERTIFICATE_VERIFY_FAILED" in line["upstream_transport_failure_reason"]
