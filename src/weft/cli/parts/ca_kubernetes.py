"""`weft ca show`, `rotate` and `status` with `--kubernetes`: the root that weft keeps in a Secret of the cluster. If
you plugged in your own CA through a Secret, `show` and `status` show that CA, and `rotate` refuses to rotate it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from click.exceptions import Exit

from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import timedelta
    from pathlib import Path

    from weft.ca.rotation import RotationPhase, State
    from weft.ca.status import AuthorityStatus
    from weft.kube.client import Client
    from weft.kube.resource import ResourceKind

_PATIENCE_SECONDS = 60.0  # time for a control plane to begin the rotation


class InstalledCa(NamedTuple):
    """Where the CA of a cluster is: the flags that name the cluster, and the namespace in which weft is installed."""

    kubeconfig: Path | None
    context: str | None
    namespace: str


def show(place: InstalledCa) -> AuthorityStatus:
    import asyncio

    from weft.ca.status import self_made_status
    from weft.cli.reach.cluster import client

    async def read() -> AuthorityStatus:
        async with client(place.kubeconfig, place.context) as cluster:
            plugged = await _plugged_in(cluster, place.namespace)
            return plugged or self_made_status(await _state(cluster, place.namespace))

    return asyncio.run(read())


def rotate(place: InstalledCa, pause: timedelta | None, *, wait: bool) -> None:
    from weft.ca.authority import Terms
    from weft.cli.reach.cluster import client

    propagation = Terms().propagation if pause is None else pause

    async def ask() -> None:
        from weft.cluster.root_secret import NAME, ROTATE
        from weft.kube.resource import SECRETS

        namespace = place.namespace
        async with client(place.kubeconfig, place.context) as cluster:
            if await _plugged_in(cluster, namespace):
                fail(
                    "this CA was plugged in: weft cannot rotate its root",
                    "docs/ca.md shows how to rotate a plugged-in CA",
                )
            await _refuse_two(cluster, namespace)
            wish = {"metadata": {"annotations": {ROTATE: f"{propagation.total_seconds():g}"}}}
            await cluster.patch(SECRETS, NAME, wish, namespace=namespace)
            phase = await _begun(cluster, namespace)
            if wait:
                await _follow(cluster, namespace, phase)

    _run(ask())
    if not wait:
        say("the control plane does the rotation; to follow it: weft ca status --kubernetes")


def status(place: InstalledCa, *, follow: bool) -> None:
    from weft.ca.status import self_made_status
    from weft.cli.reach.cluster import client

    async def print_state() -> None:
        async with client(place.kubeconfig, place.context) as cluster:
            plugged = await _plugged_in(cluster, place.namespace)
            current = plugged or self_made_status(await _state(cluster, place.namespace))
            if follow and plugged is None:
                await _follow(cluster, place.namespace)
            else:
                say(f"{current.phase}: {current.next_step}")

    _run(print_state())


def _run(command: Coroutine[None, None, None]) -> None:
    import asyncio

    try:
        asyncio.run(command)
    except KeyboardInterrupt:
        say("the rotation continues without this command; see its state: weft ca status --kubernetes")
        raise Exit(130) from None


async def _refuse_two(cluster: Client, namespace: str) -> None:
    from weft.ca.rotation import RotationPhase

    state = await _state(cluster, namespace)
    if state.phase is not RotationPhase.STEADY:
        fail(f"a rotation is under way ({state.phase})", "see its state: weft ca status --kubernetes")


async def _begun(cluster: Client, namespace: str) -> RotationPhase:
    """Wait until a control plane has begun the requested rotation. Print and return the phase of the rotation. If no
    control plane begins it in time, end the command with an error."""
    import asyncio
    from contextlib import aclosing

    from weft.ca.rotation import RotationPhase
    from weft.ca.status import self_made_status
    from weft.cluster.root_secret import states

    phase = RotationPhase.STEADY
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), aclosing(states(cluster, namespace)) as following:
            async for state in following:
                phase = state.phase
                if phase is not RotationPhase.STEADY:
                    say(f"{phase}: {self_made_status(state).next_step}")
                    break
    except TimeoutError:
        fail(
            "no control plane has begun the rotation yet",
            f"it begins when a control plane runs; see: kubectl get pods -n {namespace} -l app=istiod",
        )
    return phase


async def _follow(cluster: Client, namespace: str, shown: RotationPhase | None = None) -> None:
    """Print each phase as it begins, until the rotation has ended. `shown`: the phase that was printed last."""
    from contextlib import aclosing

    from weft.ca.rotation import RotationPhase
    from weft.ca.status import self_made_status
    from weft.cluster.root_secret import states

    async with aclosing(states(cluster, namespace)) as following:
        async for state in following:
            if state.phase is not shown:
                shown = state.phase
                say(f"{shown}: {self_made_status(state).next_step}")
            if shown is RotationPhase.STEADY:
                return


async def _plugged_in(cluster: Client, namespace: str) -> AuthorityStatus | None:
    """Return the status of a CA that was plugged in through a Secret; None if there is no such CA, or if it does not
    sign yet."""
    from cryptography import x509

    from weft.ca.certificates import certificate_pem
    from weft.ca.plugged import CERTIFICATE, CHAIN, ROOTS
    from weft.ca.status import plugged_status
    from weft.kube.resource import CONFIG_MAPS, SECRETS
    from weft.model.proxy import ROOT_CONFIG_MAP

    name = await _secret_of_others(cluster, namespace)
    files = await _data(cluster, SECRETS, name, namespace)
    if CERTIFICATE not in files:
        return None
    try:
        own, chain, roots = (
            {certificate_pem(each): each for each in x509.load_pem_x509_certificates(_decoded(files[file]))}
            if file in files
            else {}
            for file in (CERTIFICATE, CHAIN, ROOTS)
        )
    except ValueError as error:
        fail(f"the Secret {namespace}/{name} contains no certificates in PEM: {error}", "its format is in docs/ca.md")
    roots = roots or {pem: each for pem, each in own.items() if each.issuer == each.subject}
    published = (await _data(cluster, CONFIG_MAPS, ROOT_CONFIG_MAP, namespace)).get(ROOTS, "")
    if published and not any(pem in published for pem in roots):
        say(
            f"the CA in the Secret {namespace}/{name} does not sign yet: a control plane reads it only when it "
            f"starts; restart the control plane: kubectl rollout restart deployment -n {namespace} -l app=istiod"
        )
        return None
    return plugged_status("", [pem for pem in own | chain if pem not in roots], list(roots))


async def _secret_of_others(cluster: Client, namespace: str) -> str:
    """Return the name of the Secret for a plugged-in CA, as set at installation (the value `ca.secret`). The Secret
    may not exist."""
    from weft.install.values import Values
    from weft.kube.resource import DEPLOYMENTS

    usual = Values().ca.secret
    for deployment in (await cluster.list(DEPLOYMENTS, dict[str, Any], namespace=namespace, labels="app=istiod")).items:
        for volume in deployment["spec"]["template"]["spec"].get("volumes", ()):
            if volume["name"] == "cacerts":
                return str(volume.get("secret", {}).get("secretName", usual))
    return usual


async def _data(cluster: Client, resource: ResourceKind, name: str, namespace: str) -> dict[str, Any]:
    """Return the `data` of a Secret or ConfigMap; empty if the object does not exist."""
    from weft.kube.error import ApiError

    try:
        return (await cluster.get(resource, name, namespace=namespace)).get("data") or {}
    except ApiError as error:
        if not error.not_found:
            raise
        return {}


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


async def _state(cluster: Client, namespace: str) -> State:
    from weft.cluster.root_secret import NAME, read_state
    from weft.kube.error import ApiError

    try:
        return await read_state(cluster, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        fail(
            f"there is no Secret {namespace}/{NAME}: the CA is not weft's own, or weft is not installed there",
            "weft does not rotate the root of a plugged-in CA (docs/ca.md); to install weft: weft install",
        )
