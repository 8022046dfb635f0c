"""Reads the address and credentials of the API server from the pod's service account, or from a kubeconfig as
kubectl reads it. The result is an ApiConnection. It names the files that rotate (token, CA, client certificate),
which `credentials.py` reads again when they change. Rule: a setting that weft does not support is rejected with
the file and a hint, never ignored."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from weft.base.suggest import did_you_mean
from weft.kube.error import ConfigError

ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST_FILE = 16 << 20


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """An exec plugin of a kubeconfig: a program that prints credentials (client.authentication.k8s.io)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False


class ApiConnection(msgspec.Struct, frozen=True, kw_only=True):
    """Address and credentials of an API server. Certificates, keys and tokens are given as text (PEM, not base64) or as
    the path of a file, which is read again whenever it changes. If both are set, the file is used, and the text only
    until the file can be read. `source`: the file from which these settings were read, for messages. `server_name`: the
    name in the server's certificate, if it is not the host. `insecure`: do not verify that certificate. `impersonate`:
    HTTP headers of impersonation."""

    server: str  # https://host:port, optionally with a path
    source: str = ""  # for messages: the file these settings were read from
    namespace: str = "default"
    ca_data: str = ""
    ca_file: str = ""
    server_name: str = ""  # the name in the server's certificate, if it is not the host
    insecure: bool = False  # do not verify the server's certificate: only if set in the kubeconfig
    client_certificate: str = ""
    client_certificate_file: str = ""
    client_key: str = ""
    client_key_file: str = ""
    token: str = ""
    token_file: str = ""
    exec_plugin: ExecPlugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()  # HTTP headers of impersonation
    proxy_url: str = ""

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, source={self.source!r})"  # the rest is secret


def load(kubeconfig: Path | str | None = None, context: str | None = None) -> ApiConnection:
    """Return the connection settings from the given file, else $KUBECONFIG, else the pod's service account (if no
    `context` is given), else ~/.kube/config. Raises ConfigError."""
    if kubeconfig is not None:
        return from_kubeconfig([Path(kubeconfig).expanduser()], context)
    if named := [Path(path).expanduser() for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]:
        return from_kubeconfig(named, context)
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    usual = Path("~/.kube/config").expanduser()
    if not usual.exists():
        raise ConfigError(
            "there is no kubeconfig, and weft does not run in a pod",
            "set one with --kubeconfig or $KUBECONFIG",
            file=usual,
        )
    return from_kubeconfig([usual], context)


def contexts(kubeconfig: Path | str | None = None) -> list[str]:
    """Return the names of all contexts in the given kubeconfig, else in $KUBECONFIG, else in ~/.kube/config. Whether
    `load` accepts their settings is not checked. Raises ConfigError."""
    paths = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    return [each.name for file in files if file.exists() for each in _read(file).contexts]


def in_cluster(directory: Path = ACCOUNT_DIRECTORY) -> ApiConnection:
    """Return the connection settings of a pod, from the files that kubelet mounts for its service account."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            "weft does not run in a pod: KUBERNETES_SERVICE_HOST is not set", "set a kubeconfig with --kubeconfig"
        )
    for file in ("token", "ca.crt"):
        if not (directory / file).is_file():
            raise ConfigError(
                "the pod's service account is not mounted",
                "automountServiceAccountToken must not be false for this pod",
                file=directory / file,
            )
    try:
        namespace = (directory / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    return ApiConnection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source="the pod's service account",
        namespace=namespace or "default",
        ca_file=str(directory / "ca.crt"),
        token_file=str(directory / "token"),
    )


def from_kubeconfig(files: list[Path], context: str | None = None) -> ApiConnection:
    """Return the connection settings of a context; by default, the current context. Several files are merged as
    kubectl does: among entries with the same name, the first is used."""
    read = [(file, _read(file)) for file in files if file.exists()]
    if not read:
        raise ConfigError("there is no such file", "set one with --kubeconfig or $KUBECONFIG", file=files[0])
    shown = os.pathsep.join(str(file) for file, _ in read)
    chosen = context or next((config.current_context for _, config in read if config.current_context), "")
    if not chosen:
        raise ConfigError("no current context", "choose one: kubectl config use-context NAME, or --context", file=shown)
    named_context, _ = _pick(
        shown, "context", chosen, [(c.name, c.context, f) for f, config in read for c in config.contexts]
    )
    cluster, cluster_file = _pick(
        shown, "cluster", named_context.cluster, [(c.name, c.cluster, f) for f, config in read for c in config.clusters]
    )
    user, user_file = _User(), cluster_file
    if named_context.user:
        user, user_file = _pick(
            shown, "user", named_context.user, [(u.name, u.user, f) for f, config in read for u in config.users]
        )
    return _connection(f"{shown}, context {chosen}", named_context, (cluster, cluster_file), (user, user_file))


class _Lenient(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Base class of the structs of a kubeconfig. Unknown fields are ignored, as kubectl does."""


class _Cluster(_Lenient, frozen=True, kw_only=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _User(_Lenient, frozen=True, kw_only=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    exec: _Exec | None = None
    auth_provider: Any = None
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _Context(_Lenient, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _Config(_Lenient, frozen=True, kw_only=True):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


def _read(file: Path) -> _Config:
    try:
        with file.open("rb") as opened:
            text = opened.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
    if len(text) > _LONGEST_FILE:
        raise ConfigError("is too large for a kubeconfig", file=file)
    try:
        config = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)  # report the position only: the text may contain a token
        line = f" in line {place.line + 1}" if place else ""
        raise ConfigError(f"is not YAML{line}", "try: kubectl config view", file=file) from None
    if isinstance(config, dict):  # kubectl writes `users: null` for an empty list
        config = {field: value for field, value in config.items() if value is not None}
    try:
        return msgspec.convert(config or {}, _Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"is not a kubeconfig: {error}", file=file) from None


_Entry = TypeVar("_Entry")


def _pick(shown: str, what: str, name: str, entries: list[tuple[str, _Entry, Path]]) -> tuple[_Entry, Path]:
    for entry_name, entry, file in entries:
        if entry_name == name:
            return entry, file
    raise ConfigError(f"there is no {what} `{name}`", did_you_mean(name, [entry[0] for entry in entries]), file=shown)


def _connection(
    source: str, context: _Context, of_cluster: tuple[_Cluster, Path], of_user: tuple[_User, Path]
) -> ApiConnection:
    (cluster, cluster_file), (user, user_file) = of_cluster, of_user
    address = urlsplit(cluster.server)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise ConfigError(
            f"cluster `{context.cluster}`: `{cluster.server}` is not the address of an API server",
            "server: https://HOST:PORT",
            file=cluster_file,
        )
    if user.auth_provider is not None or user.username:
        old = "an auth-provider" if user.auth_provider is not None else "a username and password"
        raise ConfigError(
            f"user `{context.user}` has {old}, which Kubernetes itself no longer supports",
            "use an exec plugin, a token or a client certificate",
            file=user_file,
        )
    certificate = _data(user.client_certificate_data, "client-certificate-data", user_file)
    key = _data(user.client_key_data, "client-key-data", user_file)
    certificate_file = "" if certificate else _file(user.client_certificate, "client-certificate", user_file)
    key_file = "" if key else _file(user.client_key, "client-key", user_file)
    if bool(certificate or certificate_file) != bool(key or key_file):
        missing = "key" if certificate or certificate_file else "certificate"
        raise ConfigError(
            f"user `{context.user}` has an incomplete client certificate: the {missing} is missing", file=user_file
        )
    authority = _data(cluster.certificate_authority_data, "certificate-authority-data", cluster_file)
    if cluster.insecure_skip_tls_verify and (authority or cluster.certificate_authority):
        raise ConfigError(
            f"cluster `{context.cluster}` has both a CA and insecure-skip-tls-verify: remove one",
            file=cluster_file,
        )
    return ApiConnection(
        server=cluster.server.rstrip("/"),
        source=source,
        namespace=context.namespace or "default",
        ca_data=authority,
        ca_file="" if authority else _file(cluster.certificate_authority, "certificate-authority", cluster_file),
        server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        client_certificate=certificate,
        client_certificate_file=certificate_file,
        client_key=key,
        client_key_file=key_file,
        token=user.token.strip(),
        token_file=_file(user.token_file, "tokenFile", user_file),
        exec_plugin=_plugin(user.exec, context.user, user_file),
        impersonate=_impersonate(user, context.user, user_file),
        proxy_url=cluster.proxy_url,
    )


def _data(encoded: str, field: str, file: Path) -> str:
    try:
        return base64.b64decode("".join(encoded.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        raise ConfigError(f"{field} is not base64-encoded PEM", file=file) from None


def _file(path: str, field: str, config: Path) -> str:
    if not path:
        return ""
    file = config.absolute().parent / Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"{field} names {file}, which does not exist", file=config)
    return str(file)


def _plugin(plugin: _Exec | None, user: str, file: Path) -> ExecPlugin | None:
    if plugin is None:
        return None
    if plugin.api_version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise ConfigError(
            f"user `{user}`: exec plugins of apiVersion `{plugin.api_version}` are not supported",
            "weft supports client.authentication.k8s.io/v1: update the plugin and create the kubeconfig again",
            file=file,
        )
    if plugin.interactive_mode == "Always":
        raise ConfigError(
            f"user `{user}`: the exec plugin `{plugin.command}` needs a terminal, which weft does not provide",
            "interactiveMode: IfAvailable",
            file=file,
        )
    command = plugin.command
    if "/" in command:  # a path; a plain name is looked up on PATH
        command = str(file.absolute().parent / Path(command).expanduser())
    return ExecPlugin(
        api_version=plugin.api_version,
        command=command,
        args=tuple(plugin.args or ()),
        env=tuple((variable.name, variable.value) for variable in plugin.env or ()),
        install_hint=" ".join(plugin.install_hint.split()),
        provide_cluster_info=plugin.provide_cluster_info,
    )


def _impersonate(user: _User, name: str, file: Path) -> tuple[tuple[str, str], ...]:
    rest = [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
    rest += [("Impersonate-Group", group) for group in user.as_groups or ()]
    rest += [
        (f"Impersonate-Extra-{key}", value) for key, values in (user.as_user_extra or {}).items() for value in values
    ]
    if rest and not user.as_:
        raise ConfigError(f"user `{name}`: as-groups, as-uid and as-user-extra have no effect without `as`", file=file)
    return (("Impersonate-User", user.as_), *rest) if user.as_ else ()
