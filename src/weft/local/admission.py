"""What a running mesh takes of the objects it is given: services get an address, and settings lose what cannot be here.

Every value passes `admit` on its way into the mesh; what is wrong with it becomes a problem, and goes when its object
does. Rule: the first files say the trust domain, and it stays. Every certificate there is says it, and every proxy asks
for it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from weft.base.problem import Problem, Severity
from weft.control.plane import ControlPlane
from weft.local import access_log
from weft.local.addresses import Addresses
from weft.model.names import ObjectKey, where_of
from weft.model.settings import Settings
from weft.model.value import Value


class AdmittingMesh(Protocol):
    """The mesh that the objects are for (`local/engine.py`)."""

    name: str
    control: ControlPlane
    addresses: Addresses


class LocalAdmission:
    def __init__(self, mesh: AdmittingMesh) -> None:
        self._mesh = mesh
        self._trust_domain: str | None = None  # from the first look at the files on

    def fix_trust_domain(self) -> str:
        """From now on it is what the files have said."""
        if self._trust_domain is None:
            self._trust_domain = self._mesh.control.mesh.settings.trust_domain
        return self._trust_domain

    def admit(self, value: Value) -> Value:
        if isinstance(value, Settings):
            value, problems = access_log.writable(value)
            self._mesh.control.note("access log", problems)
            return value if self._trust_domain is None else self._same_trust_domain(value, self._trust_domain)
        return self._mesh.addresses.admit(value)

    def on_change(self, changed: frozenset[ObjectKey]) -> None:
        control, addresses = self._mesh.control, self._mesh.addresses
        if not control.mesh.settings.origin:  # the object that asked for it is gone
            control.note("access log", ())
            self._keep_trust_domain(changed)
        if any(key.kind in ("Service", "ServiceEntry") for key in changed):
            control.note("addresses", addresses.keep_services(control.mesh.services()))

    def _same_trust_domain(self, settings: Settings, running: str) -> Settings:
        if settings.trust_domain == running:
            self._mesh.control.note("trust domain", ())
            return settings
        what = f"the trust domain of a running mesh stays {running}; `{settings.trust_domain}` is for the next one"
        where = where_of(settings.origin, "" if settings.origin else "mesh configuration")
        hint = f"weft down {self._mesh.name}, then weft up again"
        self._mesh.control.note("trust domain", [Problem(where, what, hint, Severity.WARNING)])
        return msgspec.structs.replace(settings, trust_domain=running)

    def _keep_trust_domain(self, changed: frozenset[ObjectKey]) -> None:
        """The object that said it is gone: what it said of the trust domain stays, in its place."""
        control, running = self._mesh.control, self.fix_trust_domain()
        settings = control.mesh.settings
        gone = next((key for key in changed if key.kind == "ConfigMap" and not control.mesh.get(key)), None)
        if settings.trust_domain != running and gone is not None:
            control.put(gone, (msgspec.structs.replace(settings, trust_domain=running),))
            self._same_trust_domain(settings, running)
