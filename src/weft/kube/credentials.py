"""Provides the current credentials for the API server before each request. Files that rotate are read when they
change; an exec plugin is run when its credentials have expired. Rule: if a file cannot be read, its last content
is used."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from weft.base.secrecy import memory_file
from weft.kube.config import ApiConnection, ExecPlugin
from weft.kube.error import ApiUnavailable, ConfigError

log = logging.getLogger("weft.kube")

_PLUGIN_TIMEOUT = 60.0  # seconds; some plugins open a browser
_LONGEST_OUTPUT = 1 << 20
_EARLY = timedelta(seconds=10)  # a credential is renewed this long before it expires


class ApiCredentials:
    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._token = _Watched(connection.token_file, connection.token)
        self._authority = _Watched(connection.ca_file, connection.ca_data)
        self._certificate = _Watched(connection.client_certificate_file, connection.client_certificate)
        self._key = _Watched(connection.client_key_file, connection.client_key)
        self._granted = _Granted()
        self._asking = asyncio.Lock()
        self._tls: tuple[tuple[str, str, str], ssl.SSLContext] | None = None
        if connection.insecure:
            log.warning(
                "%s: insecure-skip-tls-verify is set: the API server's certificate is not verified", connection.source
            )

    async def headers(self) -> list[tuple[str, str]]:
        await self._ask_plugin()
        token = self._token.read().strip() or self._granted.token
        return [*self._connection.impersonate, *([("Authorization", f"Bearer {token}")] if token else [])]

    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS context for connections to the API server. As long as certificates and key do not change, the
        same context is returned, so that connections are reused. If new files are invalid, the last valid context stays
        in use. For an http:// server, return True, which is aiohttp's default and has no effect without TLS."""
        if self._connection.server.startswith("http://"):
            return True
        certificate = self._certificate.read() or self._granted.certificate
        read = (self._authority.read(), certificate, self._key.read() or self._granted.key)
        if self._tls is None or self._tls[0] != read:
            try:
                self._tls = (read, self._context(*read))
            except ConfigError as error:
                if self._tls is None:
                    raise
                log.warning("%s; the last valid TLS settings stay in use", error)
                self._tls = (read, self._tls[1])  # so that the warning is logged once per content of the files
        return self._tls[1]

    async def renew(self) -> bool:
        """Read the credentials again, after the server rejected them with 401. Returns whether they changed."""
        before = self._token.text, self._granted
        self._token.forget()
        if self._connection.exec_plugin is not None:
            self._granted = _Granted()
            await self._ask_plugin()
        return before != (self._token.read(), self._granted)

    def _context(self, authority: str, certificate: str, key: str) -> ssl.SSLContext:
        source = self._connection.source
        try:
            context = ssl.create_default_context(cadata=authority or None)
        except (ssl.SSLError, ValueError) as error:
            where = self._connection.ca_file or source
            raise ConfigError(f"the API server's CA is not a PEM certificate: {error}", file=where) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate and key:
            with memory_file(f"{certificate}\n{key}".encode()) as path:
                try:
                    context.load_cert_chain(path, password=_no_password)
                except (ssl.SSLError, ValueError) as error:
                    raise ConfigError(
                        f"the client certificate and its key cannot be used: {error}",
                        "compare the public keys: openssl x509 -pubkey, openssl pkey -pubout",
                        file=self._connection.client_certificate_file or source,
                    ) from error
        return context

    async def _ask_plugin(self) -> None:
        plugin = self._connection.exec_plugin
        if plugin is None:
            return
        async with self._asking:
            if not self._granted.valid:
                self._granted = await _run(plugin, self._connection)


def _no_password() -> str:
    raise ValueError("the key is encrypted, and its password cannot be prompted for")


class _Watched:
    """A fixed text, or the text of a file, which is read again when the file's inode, time or size has changed. A
    projected volume changes a file by replacing a symlink, so that the path leads to another inode."""

    def __init__(self, file: str, text: str) -> None:
        self.text = text
        self._file = file
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> str:
        if not self._file:
            return self.text
        try:
            stat = os.stat(self._file)  # noqa: PTH116 - before each request, and Path costs more than the call
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen != self._seen:
                text = Path(self._file).read_text()
                if text.strip():  # an empty file is just being written
                    self.text, self._seen = text, seen
        except (OSError, ValueError) as error:
            if not self.text:
                raise ConfigError(f"cannot be read: {error}", file=self._file) from error
        return self.text

    def forget(self) -> None:
        self._seen = None


class _Granted(msgspec.Struct, frozen=True):
    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None

    @property
    def valid(self) -> bool:
        if not self.token and not self.certificate:
            return False
        return self.expires is None or datetime.now(UTC) + _EARLY < self.expires

    def __repr__(self) -> str:
        return f"_Granted(expires={self.expires})"


class _CredentialStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _CredentialStatus


async def _run(plugin: ExecPlugin, connection: ApiConnection) -> _Granted:
    where = f"exec plugin {plugin.command}"
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin, connection)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = plugin.install_hint or "install the plugin: it usually comes with the tools of the cloud provider"
        raise ConfigError(f"cannot be started: {error.strerror or error}", hint, where=where) from error
    try:
        async with asyncio.timeout(_PLUGIN_TIMEOUT):
            output = await _bounded(process.stdout)
            code = await process.wait()
    except TimeoutError as error:
        raise ApiUnavailable(f"returned no credentials within {_PLUGIN_TIMEOUT:.0f} s", where=where) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if code != 0:
        raise ApiUnavailable(f"failed with status {code}", "the plugin's messages are on standard error", where=where)
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError("did not print an ExecCredential", plugin.install_hint, where=where) from error
    status = credential.status
    if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
        printed = f"{credential.api_version} {credential.kind}"
        raise ConfigError(f"printed {printed}, not {plugin.api_version} ExecCredential", where=where)
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ConfigError("printed neither a token nor a client certificate with its key", where=where)
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return _Granted(status.token, status.client_certificate_data, status.client_key_data, expires)


async def _bounded(stream: asyncio.StreamReader | None) -> bytes:
    output = b""
    while stream is not None and (chunk := await stream.read(65536)):
        output += chunk
        if len(output) > _LONGEST_OUTPUT:
            break
    return output


def _exec_info(plugin: ExecPlugin, connection: ApiConnection) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        authority = connection.ca_data or (Path(connection.ca_file).read_text() if connection.ca_file else "")
        spec["cluster"] = {
            "server": connection.server,
            "tls-server-name": connection.server_name,
            "insecure-skip-tls-verify": connection.insecure,
            "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
            "proxy-url": connection.proxy_url,
        }
    return msgspec.json.encode({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}).decode()
