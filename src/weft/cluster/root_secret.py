"""The mesh's root on a cluster: stored in a Secret, which every replica of the control plane reads and watches.

Input: an API client. Output: an Authority that signs with the root in the Secret and follows its changes. Rule: a
change that was decided on an older version of the Secret is not written; the API server compares the resource versions.
The root is stored nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

import msgspec

from weft.base.backoff import Backoff
from weft.ca.authority import Authority, Terms
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase, State
from weft.ca.self_made import new_state
from weft.install.names import ROOTS_ANNOTATION
from weft.kube.client import Client
from weft.kube.error import ApiError, KubeError
from weft.kube.reflector import Event, reflect
from weft.kube.resource import CONFIG_MAPS, SECRETS
from weft.model.proxy import ROOT_CONFIG_MAP

log = logging.getLogger("weft.cluster.root_secret")

NAME = "istio-ca-secret"
STATE = "authority.json"
# Annotation with which an operator requests a new root; its value is the wait in seconds.
ROTATE = "weft.dev/rotate-root"
RESTORE_SECONDS = 30.0  # seconds to wait for a deleted Secret; another replica leads 15 s after the leader failed
_LOOK_SECONDS = 0.5
_FOR_PEOPLE = "ca-cert.pem"  # key of the bundle, the one that Istio's users expect
_TYPE = "istio.io/ca-root"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] = {}


class _Published(msgspec.Struct, frozen=True):
    metadata: _Metadata


async def read_state(client: Client, namespace: str) -> State:
    """Return the current content of the Secret. Raises AuthorityError, KubeError."""
    return _state_of(await client.get(SECRETS, NAME, _Secret, namespace=namespace), namespace)


async def states(client: Client, namespace: str) -> AsyncGenerator[State]:
    """Yield the content of the Secret, now and after each change. Raises AuthorityError, KubeError."""
    async with aclosing(_watch(client, namespace)) as batches:
        async for batch in batches:
            for event in batch:
                if event.object is not None:
                    yield _state_of(event.object, namespace)


def _watch(client: Client, namespace: str) -> AsyncGenerator[tuple[Event[_Secret], ...]]:
    return reflect(client, SECRETS, _Secret, namespace=namespace, fields=f"metadata.name={NAME}")


class RootSecret:
    def __init__(self, client: Client, namespace: str, trust_domain: str, terms: Terms) -> None:
        self._client = client
        self._namespace = namespace
        self._trust_domain = trust_domain
        self._terms = terms
        self._version = ""
        # The newest state to write, and the resource version that it is based on.
        self._wanted: tuple[State, str] | None = None
        self._wish = asyncio.Event()
        self._states: dict[str, State] = {}  # the last state that was read or written, by its resource version
        self._wait = ""  # the wait of a rotation that was requested and has not begun
        self._is_gone = False

    async def open(self) -> Authority:
        """Read the root from the Secret, and return the authority that signs with it. If the Secret does not exist,
        create it with a new root; but if it was deleted, first wait for the leader to restore it (`_restored`). Raises
        AuthorityError, KubeError."""
        try:
            secret = await self._client.get(SECRETS, NAME, _Secret, namespace=self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            secret = await self._restored() or await self._make()
        state = self._read(secret)
        self.authority = Authority.share(state, self._keep, self._terms)
        return self.authority

    async def run(self) -> None:
        """Apply changes of the Secret to the authority, and write changes of the authority to the Secret, until
        cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._write())

    def rotate_if_asked(self) -> None:
        """Begin a rotation of the root if an operator has requested one. Only the leader calls this."""
        if not self._wait or self.authority.phase is not RotationPhase.STEADY:
            return
        wait, self._wait = self._wait, ""
        try:
            self.authority.rotate(timedelta(seconds=max(0.0, float(wait))))
        except (ValueError, OverflowError, AuthorityError) as error:
            log.error("the rotation that the Secret %s/%s requests is not possible: %s", self._namespace, NAME, error)

    async def restore_if_gone(self) -> None:
        """Write a deleted Secret again, before a new replica creates another root, which no workload trusts yet. Only
        the leader calls this. To replace the root, an operator requests a rotation."""
        if not self._is_gone:
            return
        try:
            await self._client.create(SECRETS, self._manifest(self._state), namespace=self._namespace)
        except ApiError as error:
            if not error.already_exists:  # if it exists, the watch will report it soon
                log.error("cannot write the root to a new Secret %s/%s: %s", self._namespace, NAME, error)
            return
        except KubeError as error:
            log.warning("cannot write the root to a new Secret %s/%s: %s", self._namespace, NAME, error)
            return
        self._is_gone = False
        log.warning("the Secret %s/%s was deleted; it was created again with the same root", self._namespace, NAME)

    @property
    def _state(self) -> State:
        return self._states[self._version]

    def _manifest(self, state: State) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": _TYPE,
            "metadata": {"name": NAME, "namespace": self._namespace},
            "data": _data(state),
        }

    async def _restored(self) -> _Secret | None:
        """Wait up to RESTORE_SECONDS for the leader to create a deleted Secret again, and return it. None if the
        Secret is not created in time, or if no root was published before. A published root means that the Secret
        existed and was deleted just now. No workload would trust another root, so this replica waits before it
        creates one."""
        published = await self._client.list(
            CONFIG_MAPS, _Published, namespace=self._namespace, fields=f"metadata.name={ROOT_CONFIG_MAP}"
        )
        if not any(name.startswith(ROOTS_ANNOTATION) for each in published.items for name in each.metadata.annotations):
            return None
        log.warning(
            "the Secret %s/%s with the root in use was deleted; waiting for the leader to restore it",
            self._namespace,
            NAME,
        )
        until = time.monotonic() + RESTORE_SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            secrets = await self._client.list(
                SECRETS, _Secret, namespace=self._namespace, fields=f"metadata.name={NAME}"
            )
            if secrets.items:
                return secrets.items[0]
        log.error("the root of %s is lost; a new root is made, and pods need new certificates", self._trust_domain)
        return None

    async def _make(self) -> _Secret:
        state = new_state(self._trust_domain, time.time(), self._terms.root_lifetime)
        try:
            secret = await self._client.create(SECRETS, self._manifest(state), _Secret, namespace=self._namespace)
        except ApiError as error:
            if not error.already_exists:
                raise
            return await self._client.get(SECRETS, NAME, _Secret, namespace=self._namespace)
        log.info("created a root for %s in the Secret %s/%s", self._trust_domain, self._namespace, NAME)
        return secret

    def _read(self, secret: _Secret) -> State:
        state = _state_of(secret, self._namespace)
        if state.trust_domain != self._trust_domain:
            raise AuthorityError(
                f"its root is for the trust domain {state.trust_domain!a}, not {self._trust_domain!a}",
                "set the trust domain that the root was made for",
                file=_where(self._namespace),
            )
        self._version = secret.metadata.resource_version
        self._states = {self._version: state}
        self._wait = secret.metadata.annotations.get(ROTATE, "")
        return state

    def _keep(self, wanted: State, decided_on: State) -> None:
        if self._states.get(self._version) == decided_on:
            self._wanted = (wanted, self._version)
            self._wish.set()

    async def _follow(self) -> None:
        listed = False
        async for batch in _watch(self._client, self._namespace):
            if not listed and not batch:
                self._is_gone = True  # the Secret was deleted after it was read
            listed = True
            for event in batch:
                self._is_gone = event.object is None
                if event.object is None:
                    log.error("the Secret %s/%s was deleted; the root is still in memory", self._namespace, NAME)
                    continue
                try:
                    self.authority.adopt(self._read(event.object))
                except AuthorityError as error:
                    log.error("the changed root is not used, the old one stays in use: %s", error)

    async def _write(self) -> None:
        backoff = Backoff(first=0.2, most=10.0)
        while True:
            await self._wish.wait()
            self._wish.clear()
            if self._wanted is None:
                continue
            (state, version), self._wanted = self._wanted, None
            # A patch instead of the whole Secret, so that keys and annotations of other writers stay.
            metadata: dict[str, object] = {"resourceVersion": version}
            if state.phase is not RotationPhase.STEADY:
                metadata["annotations"] = {ROTATE: None}  # the requested rotation has begun
            patch = {"metadata": metadata, "data": _data(state)}
            try:
                await self._client.patch(SECRETS, NAME, patch, namespace=self._namespace)
                backoff.reset()
            except ApiError as error:
                # After a conflict the watch reports the newer Secret, and the change is decided again.
                if not error.conflict:
                    log.error("cannot write the root to the Secret: %s", error)
                await asyncio.sleep(backoff.next())
            except KubeError as error:
                log.warning("cannot write the root to the Secret: %s", error)
                await asyncio.sleep(backoff.next())


def _state_of(secret: _Secret, namespace: str) -> State:
    text = secret.data.get(STATE)
    if text is None:
        raise AuthorityError(
            f"has no `{STATE}`: it was not made by weft",
            "to use the CA in this Secret, put its files into a Secret named cacerts; then delete this Secret",
            file=_where(namespace),
        )
    try:
        return msgspec.json.decode(base64.b64decode(text, validate=True), type=State)
    except (ValueError, msgspec.MsgspecError) as error:
        raise AuthorityError(f"cannot be read: {error}", "restore it from a backup", file=_where(namespace)) from error


def _where(namespace: str) -> str:
    return f"Secret {namespace}/{NAME}"


def _data(state: State) -> dict[str, str]:
    bundle = "".join(state.bundle())
    return {
        STATE: base64.b64encode(msgspec.json.encode(state)).decode(),
        _FOR_PEOPLE: base64.b64encode(bundle.encode()).decode(),
    }
