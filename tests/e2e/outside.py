"""A caller outside of a mesh: certificates of every kind, and handshakes with them from the mesh's own bridge,
without a proxy on the caller's side. Uses Python's TLS and, where it is installed, OpenSSL's command."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import ssl
import subprocess
import time
import warnings
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ca.making import ca, p256, plug_in
from weft.ca.certificates import Signing, Validity, certificate_pem, key_pem, make_leaf, make_server
from weft.netns.namespace import NetworkNamespace, socket_in

OPENSSL = shutil.which("openssl")
TLS_CLIENTS = ("ssl", "openssl") if OPENSSL else ("ssl",)
MINUTE, DAY = 60.0, 86_400.0


class Credentials(msgspec.Struct, frozen=True):
    """What a caller presents: a file with its key and one with its certificates; empty without a certificate."""

    key: Path | None = None
    chain: Path | None = None


class Outcome(msgspec.Struct, frozen=True):
    answer: str = ""  # of the application or its proxy; empty if the connection ended without one
    error: str = ""
    address: str = ""  # the caller's, as in the other side's log; OpenSSL does not report it

    @property
    def status(self) -> int:
        return int(self.answer.split()[1]) if self.answer.startswith("HTTP/") else 0


class TrustCenter:
    """The mesh's CA, an intermediate below a root, in Istio's files; and forged or stolen credentials."""

    def __init__(self, directory: Path) -> None:
        root_key, self.key = p256(), p256()
        self.root = ca("the root", root_key)
        self.certificate = ca("the intermediate", self.key, by=self.root, by_key=root_key, path_length=0)
        self.directory = directory / "ca"
        plug_in(self.directory, certificate=self.certificate, key=self.key, roots=[self.root], chain=[self.certificate])
        self.signing = Signing(self.certificate, self.key, (certificate_pem(self.certificate),))
        self._files = directory
        self.bundle = directory / "roots.pem"
        self.bundle.write_text(certificate_pem(self.root))

    def of(self, uri: str, *, begins: float = -MINUTE, ends: float = DAY) -> Credentials:
        """Credentials issued by the mesh's own CA."""
        key = p256()
        leaf = make_leaf(self.signing, key.public_key(), uri, _validity(begins, ends))
        return self._write(key_pem(key), leaf, *self.signing.chain)

    def of_a_server(self) -> Credentials:
        """A server certificate of the mesh's own CA, as the control plane has: for a host name, not for client
        authentication."""
        key = p256()
        leaf = make_server(self.signing, key.public_key(), ("shop.example",), _validity())
        return self._write(key_pem(key), leaf, *self.signing.chain)

    def self_signed(self, uri: str) -> Credentials:
        key = p256()
        alone = Signing(ca("nobody", key), key)
        return self._write(key_pem(key), make_leaf(alone, key.public_key(), uri, _validity()))

    def foreign(self, uri: str) -> Credentials:
        key, foreign_key = p256(), p256()
        foreign = Signing(ca("another root", foreign_key), foreign_key)
        leaf = make_leaf(foreign, key.public_key(), uri, _validity())
        return self._write(key_pem(key), leaf, certificate_pem(foreign.certificate))

    def forged(self, uri: str) -> Credentials:
        """A certificate whose fields claim that the mesh's root signed it."""
        key = p256()
        return self._write(key_pem(key), make_leaf(Signing(self.root, p256()), key.public_key(), uri, _validity()))

    def stolen(self, chain: tuple[x509.Certificate, ...]) -> Credentials:
        """A workload's own certificate, which is public, with a forged key: the public half is right, the private
        half is not. No library detects this before the other side does."""
        scalar = p256().private_numbers().private_value.to_bytes(32, "big")
        public = chain[0].public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        der = b"\x30\x77\x02\x01\x01\x04\x20" + scalar + bytes.fromhex("a00a06082a8648ce3d030107a144034200") + public
        pem = f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END EC PRIVATE KEY-----\n"
        return self._write(pem, *chain)

    def _write(self, key: str, *chain: x509.Certificate | str) -> Credentials:
        number = sum(1 for _ in self._files.iterdir())
        files = Credentials(self._files / f"{number}.key", self._files / f"{number}.pem")
        files.key.write_text(key)
        files.chain.write_text("".join(each if isinstance(each, str) else certificate_pem(each) for each in chain))
        return files


def _validity(begins: float = -MINUTE, ends: float = DAY) -> Validity:
    now = time.time()
    return Validity(now + begins, now + ends)


class Outside:
    """A caller on a mesh's bridge."""

    def __init__(self, namespace: NetworkNamespace, bundle: Path) -> None:
        self.namespace, self.bundle = namespace, bundle

    def plaintext(self, address: str, path: str) -> Outcome:
        connection = self._connect(address)
        with contextlib.closing(connection):
            return _exchange(connection, path)

    def call(self, client: str, address: str, path: str, shown: Credentials, **options) -> Outcome:
        """Send one request over TLS, as a proxy of the mesh would open it."""
        return (self._by_openssl if client == "openssl" else self._by_python)(address, path, shown, **options)

    def certificates(self, address: str, shown: Credentials) -> tuple[x509.Certificate, ...]:
        """The certificates that the other side presents, the leaf first, as OpenSSL prints them."""
        said = self._openssl(address, shown, "-showcerts").stdout
        return tuple(x509.load_pem_x509_certificates(said.encode()))

    def leaf(self, address: str, shown: Credentials) -> x509.Certificate:
        """The leaf that the other side presents, verified against the bundle's root."""
        connection = self._connect(address)
        with contextlib.closing(connection), self._context(shown).wrap_socket(connection) as secured:
            return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True))

    def _by_python(self, address: str, path: str, shown: Credentials, *, version: str = "TLSv1_3") -> Outcome:
        connection = self._connect(address)
        caller = _text(connection)
        context = self._context(shown)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # so that the other side rejects old versions, not this one
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
        with contextlib.closing(connection):
            try:
                secured = context.wrap_socket(connection, server_hostname="strict")
            except OSError as error:
                return Outcome(error=str(error), address=caller)
            with contextlib.closing(secured):
                return _exchange(secured, path)

    def _context(self, shown: Credentials) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.bundle)
        context.set_alpn_protocols(["istio-http/1.1"])
        if shown.chain is not None:
            context.load_cert_chain(shown.chain, shown.key)
        return context

    def _by_openssl(self, address: str, path: str, shown: Credentials, *, version: str = "TLSv1_3") -> Outcome:
        done = self._openssl(address, shown, "-quiet", f"-{version.lower().replace('v', '')}", request=path)
        answer = done.stdout[done.stdout.find("HTTP/") :] if "HTTP/" in done.stdout else ""
        return Outcome(answer=answer, error=done.stderr)

    def _openssl(
        self, address: str, shown: Credentials, *options: str, request: str = ""
    ) -> subprocess.CompletedProcess[str]:
        files = ("-cert", shown.chain, "-key", shown.key, "-cert_chain", shown.chain) if shown.chain else ()
        command = ("openssl", "s_client", "-connect", f"{address}:8080", "-servername", "strict")
        trust = ("-alpn", "istio-http/1.1", "-CAfile", self.bundle, "-verify_return_error")
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace.name, *command, *trust, *files, *options],
            input=_request(request).decode() if request else "",
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def _connect(self, address: str) -> socket.socket:
        connection = socket_in(self.namespace)
        connection.settimeout(10)
        connection.connect((address, 8080))
        return connection


def _exchange(stream: socket.socket, path: str) -> Outcome:
    """In TLS 1.3 a client learns of its rejection only when it reads."""
    address, answer = _text(stream), b""
    try:
        stream.sendall(_request(path))
        while data := stream.recv(65536):
            answer += data
    except OSError as error:
        return Outcome(answer=answer.decode(), error=str(error), address=address)
    return Outcome(answer=answer.decode(), error="" if answer else "closed", address=address)


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: strict\r\nConnection: close\r\n\r\n".encode()


def _text(connection: socket.socket) -> str:
    host, port, *_ = connection.getsockname()
    return f"{host}:{port}"
