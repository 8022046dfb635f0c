"""`weft control`: the control plane alone. It reads a directory of YAML, serves xDS to any client, and issues
certificates to clients with a trusted token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from weft.cli.flags import shared
from weft.cli.parts.ca import DIRECTORY

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from datetime import timedelta

    from weft.ca.authority import Authority
    from weft.ca.signed_tokens import SignedTokens
    from weft.control.plane import ControlPlane
    from weft.history.persistence import Memory


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default=True,
    help="The directory of YAML, watched for changes.",
)
@click.option(
    "--listen",
    default="127.0.0.1:15010",
    show_default=True,
    help="HOST:PORT or unix:/path to serve xDS on, in plaintext.",
)
@click.option("--domain", default="cluster.local", show_default=True, help="The domain that service names end in.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    default=DIRECTORY,
    show_default=True,
    help="The directory of the CA's root, or of a plugged-in CA's files.",
)
@click.option(
    "--ca-listen",
    default="",
    help="HOST:PORT (TLS) or unix:/path of the CA; default: 127.0.0.1:15012, on Kubernetes port 15012 of any address.",
)
@shared.trust_domain()
@click.option(
    "--token-keys",
    type=click.Path(path_type=Path),
    help="Public keys of the token issuer: a JWKS, or PEM. Without them no CA is served.",
)
@click.option("--token-issuer", default="", help="The required `iss` of tokens.")
@click.option("--token-audience", default="istio-ca", show_default=True, help="The required `aud` of tokens.")
@shared.kubernetes_flag("Read objects from a cluster instead of a directory.")
@shared.kubeconfig_option("With --kubernetes: the kubeconfig.")
@shared.installed_namespace
@click.option(
    "--revision", default="default", show_default=True, help="With --kubernetes: the revision of this installation."
)
@click.option(
    "--webhook-listen",
    default="",
    help="With --kubernetes: HOST:PORT of the webhooks; default: port 15017 of all addresses.",
)
@click.option(
    "--monitoring-listen",
    default="",
    help="With --kubernetes: HOST:PORT of health and metrics; default: port 15014 of all addresses.",
)
@click.option(
    "--debug",
    metavar="DIRECTORY",
    default="",
    help="The directory of the sockets for queries with --mesh DIRECTORY; default: in weft's run directory.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    help="A directory that keeps the history across restarts; by default the history ends with the process.",
)
@click.option("--log-level", default="info", show_default=True, help="debug, info, warning or error.")
@click.option(
    "--clock-skew",
    default="60s",
    show_default=True,
    help="How much clocks may differ: certificates are valid this much earlier, and old roots stay this much longer.",
)
def control(
    config: Path,
    listen: str,
    domain: str,
    ca: Path,
    ca_listen: str,
    trust_domain: str,
    token_keys: Path | None,
    token_issuer: str,
    token_audience: str,
    kubernetes: bool,
    kubeconfig: Path | None,
    namespace: str,
    revision: str,
    webhook_listen: str,
    monitoring_listen: str,
    debug: str,
    history: Path | None,
    log_level: str,
    clock_skew: str,
) -> None:
    """Serve xDS from a directory of YAML, and sign certificates.

    It runs no pods and needs no root privileges: Envoys, agents and gRPC clients run elsewhere and connect to it.

    \b
    Example: weft control --config examples/shop --listen 127.0.0.1:15010
             weft control --config . --ca ./ca --token-keys jwks.json --token-issuer https://kubernetes.default.svc
             weft control --config . --debug ./control &
             weft history --mesh ./control
             weft control --kubernetes --namespace istio-system
    """
    import asyncio

    from weft.base import log
    from weft.cli.flags.duration import duration_of
    from weft.cli.print.output import fail
    from weft.control.plane import ControlPlane

    level = log_level.upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        fail(f"`{log_level}` is not a log level", "use one of these levels: debug, info, warning, error", code=2)
    if kubernetes:
        from weft.cli.parts.control_kubernetes import Listening, run

        if history is not None:
            hint = (
                "leave out --history: each replica keeps its history since its start, and weft queries the oldest one"
            )
            fail("--history is for a mesh from files", hint, code=2)
        log.configure(level)
        skew = duration_of(clock_skew, "--clock-skew 60s")
        listening = Listening(listen, ca_listen, webhook_listen, monitoring_listen)
        run(kubeconfig, listening, namespace=namespace, revision=revision, domain=domain, ca=ca, skew=skew)
        return
    ca_listen = ca_listen or "127.0.0.1:15012"
    if not config.is_dir():
        fail(f"{config} is not a directory", "give a directory of YAML files: --config DIR")
    for address, example in ((listen, "--listen 127.0.0.1:15010"), (ca_listen, "--ca-listen 127.0.0.1:15012")):
        if not _is_address(address):
            fail(f"`{address}` is not an address to serve on", f"give HOST:PORT or unix:/path: {example}", code=2)
    skew = duration_of(clock_skew, "--clock-skew 60s")
    authority = _ca(ca, ca_listen, trust_domain, (token_keys, token_issuer, token_audience), skew)
    log.configure(level)
    plane = ControlPlane(domain=domain, memory=_memory(history, domain))
    asyncio.run(_serve(plane, config, listen, authority, debug))


def _memory(directory: Path | None, domain: str) -> Memory | None:
    from weft.cli.run.directories import past_directory
    from weft.history.persistence import Memory

    place = past_directory(directory)
    return None if place is None else Memory(place, domain=domain)


def _is_address(text: str) -> bool:
    if text.startswith("unix:"):
        return len(text) > len("unix:")
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isdecimal() and int(port) <= 65_535


class _Ca(NamedTuple):
    authority: Authority
    checker: SignedTokens
    directory: Path
    address: str


def _ca(
    directory: Path, address: str, trust_domain: str, tokens: tuple[Path | None, str, str], skew: timedelta
) -> _Ca | None:
    """Return the CA to serve at `address`. `tokens`: (file, issuer, audience), the file with the keys that verify
    tokens, and the required issuer and audience of tokens. Return None if no file is given: a CA that cannot
    authenticate its clients must not sign. `skew`: how much clocks may differ."""
    from weft.base.secrecy import keep_memory_private
    from weft.ca.authority import Authority, Terms
    from weft.ca.signed_tokens import SignedTokens
    from weft.cli.print.output import fail

    keys, issuer, audience = tokens
    if keys is None:
        return None
    if not issuer or not audience:
        fail(
            "tokens are trusted only from a known issuer",
            "give the issuer of the tokens: --token-issuer https://…",
            code=2,
        )
    keep_memory_private()
    checker = SignedTokens.from_file(keys, issuer=issuer, audience=audience)
    return _Ca(Authority.open(directory, trust_domain, Terms(skew=skew)), checker, directory, address)


async def _serve(plane: ControlPlane, config: Path, listen: str, ca: _Ca | None, debug: str) -> None:
    """Serve xDS at the address `listen`, the CA (None: no CA) and the debug pages until SIGINT or SIGTERM. `config`:
    the directory of YAML. `debug`: as `given` of `_serve_debug`."""
    import asyncio
    import signal
    from contextlib import AsyncExitStack

    from weft.cli.print.output import fail, say
    from weft.xds.server import ListenError

    loop = asyncio.get_running_loop()
    reading = asyncio.create_task(_read(plane, config))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, reading.cancel)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(plane.close)
        stack.callback(reading.cancel)
        try:
            bound = await plane.listen(listen)
            if listen.startswith("unix:"):
                # As open as a port on the loopback interface, because proxies run as other users. The mode of the
                # socket's directory decides which users can reach it.
                Path(listen.removeprefix("unix:")).chmod(0o666)
        except ListenError as error:
            fail(str(error), "choose another address: --listen 127.0.0.1:15011")
        say(f"serving xDS on {bound} from {config}; Ctrl-C ends it")
        if ca is None:
            say("no CA is served: tokens cannot be checked without --token-keys")
        else:
            bound = await _serve_ca(ca, stack)
            say(f"serving the CA of {ca.authority.trust_domain} on {bound} from {ca.directory}")
        await _serve_debug(plane, config, debug, stack)
        await asyncio.wait((reading,))
        if not reading.cancelled():
            reading.result()


async def _serve_ca(ca: _Ca, stack: AsyncExitStack) -> str:
    import asyncio

    from weft.ca.admin import AdminSocket
    from weft.ca.server import CaServer
    from weft.ca.service import CertificateService
    from weft.cli.print.output import say

    stack.callback(ca.authority.close)
    server = CaServer(CertificateService(ca.authority, ca.checker))
    stack.push_async_callback(server.close)
    bound = await server.listen(ca.address)
    stack.callback(asyncio.create_task(ca.authority.run()).cancel)
    admin = AdminSocket(ca.authority, ca.directory)
    try:
        await admin.open()
        stack.push_async_callback(admin.close)
    except OSError as error:
        say(f"weft ca rotate cannot reach this process: {ca.directory}: {error.strerror}")
    return bound


async def _serve_debug(plane: ControlPlane, config: Path, given: str, stack: AsyncExitStack) -> None:
    """Serve the debug pages and, for istioctl, xDS on two sockets that only their owner can open. `given` is the
    directory of `--debug`; empty: the default directory. If the sockets cannot be created in the default directory,
    proxies are still served, and a message states that the control plane cannot be queried. If they cannot be created
    in a given directory, the command fails. `stack` closes the sockets at the end. `config`: the directory of YAML; the
    debug socket reports it to commands, so that they can read the files."""
    import os

    from weft.base.private_directory import NotPrivate, make_private
    from weft.cli.print.output import fail, say
    from weft.cli.reach.control_directory import PAGES, STREAMS, answers, default_place
    from weft.inspect.attach import attach_debug
    from weft.inspect.debug.socket import DebugSocket, Serving
    from weft.xds.server import ListenError

    debug = attach_debug(plane)
    place = Path(given) if given else default_place()
    if place is None:
        say("this control plane cannot be queried: choose a directory for its sockets with --debug DIRECTORY")
        return
    try:
        make_private(place)
        if answers(place):
            raise OSError(f"{place}: another weft control has its socket there")
        stack.callback(_remove, place)
        socket = DebugSocket(debug, Serving(str(config.absolute()), os.getpid()))
        stack.push_async_callback(socket.close)
        await socket.listen(place / PAGES)
        await plane.listen(f"unix:{place / STREAMS}", owned=True)
    except (OSError, NotPrivate, ListenError) as error:
        if given:
            fail(str(error), "choose a directory that does not exist yet: --debug DIRECTORY")
        say(f"this control plane cannot be queried: {error}; choose a directory for its sockets: --debug DIRECTORY")
        return
    say(f"query this control plane with, for example: weft proxy-status --mesh {place}")


def _remove(place: Path) -> None:
    """Remove the xDS socket in the directory `place`, then the directory if it is empty. If it is the default
    directory, also remove its parent directory if that is empty."""
    from contextlib import suppress

    from weft.cli.reach.control_directory import STREAMS, default_place

    with suppress(OSError):
        (place / STREAMS).unlink(missing_ok=True)
        place.rmdir()
        if place == default_place():
            place.parent.rmdir()


async def _read(plane: ControlPlane, config: Path) -> None:
    from weft.files.watch import watch

    async for batch in watch(config, reader=plane.reader):
        plane.apply(batch.changes, batch.problems, kept=batch.kept)
