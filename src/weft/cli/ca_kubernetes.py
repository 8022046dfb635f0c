"""`weft ca show --kubernetes` and `weft ca rotate --kubernetes`: the root that a cluster keeps in its Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from weft.cli.output import fail, say

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from weft.ca.rotation import State
    from weft.ca.status import AuthorityStatus
    from weft.kube.client import Client

_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0  # until a control plane takes note


def show(kubeconfig: Path | None, namespace: str) -> AuthorityStatus:
    import asyncio

    from weft.ca.status import self_made_status
    from weft.cli.cluster import client

    async def read() -> State:
        async with client(kubeconfig, None) as asked:
            return await _state(asked, namespace)

    return self_made_status(asyncio.run(read()))


def rotate(kubeconfig: Path | None, namespace: str, pause: timedelta | None, *, wait: bool) -> None:
    import asyncio

    from weft.ca.authority import Terms
    from weft.cli.cluster import client

    propagation = Terms().propagation if pause is None else pause

    async def ask() -> None:
        from weft.control.root_secret import NAME, ROTATE
        from weft.kube.resource import SECRETS

        async with client(kubeconfig, None) as asked:
            await _refuse_two(asked, namespace)
            wish = {"metadata": {"annotations": {ROTATE: f"{propagation.total_seconds():g}"}}}
            await asked.patch(SECRETS, NAME, wish, namespace=namespace)
            await _follow(asked, namespace, wait=wait)

    try:
        asyncio.run(ask())
    except KeyboardInterrupt:
        say("the rotation goes on without this command; see: weft ca show --kubernetes")
        raise typer.Exit(130) from None


async def _refuse_two(asked: Client, namespace: str) -> None:
    from weft.ca.rotation import Phase

    state = await _state(asked, namespace)
    if state.phase is not Phase.STEADY:
        fail(f"a rotation is under way ({state.phase})", "see how far it is: weft ca show --kubernetes")


async def _follow(asked: Client, namespace: str, *, wait: bool) -> None:
    import asyncio

    from weft.ca.rotation import Phase
    from weft.ca.status import self_made_status

    told, left = Phase.STEADY, _PATIENCE_SECONDS
    while True:
        state = await _state(asked, namespace)
        if state.phase is not told:
            told = state.phase
            say(f"{told}: {self_made_status(state).next_step}")
            if told is Phase.STEADY or not wait:
                return
        elif told is Phase.STEADY:
            left -= _LOOK_SECONDS
            if left <= 0:
                fail(
                    "no control plane has begun the rotation yet",
                    f"it begins when one runs: kubectl get pods -n {namespace} -l app=istiod",
                )
        await asyncio.sleep(_LOOK_SECONDS)


async def _state(asked: Client, namespace: str) -> State:
    from weft.control.root_secret import NAME, read_state
    from weft.kube.error import ApiError

    try:
        return await read_state(asked, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        fail(
            f"there is no Secret {namespace}/{NAME}: the CA is not weft's own, or weft is not installed there",
            "roots of a plugged-in CA are yours to rotate (docs/ca.md); else: weft install",
        )
