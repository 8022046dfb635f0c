"""Changes objects on their way into a running mesh: services get a virtual address, and settings lose what cannot
work on this machine.

Every value passes `admit` before it enters the mesh. If something is wrong with a value, a problem is reported; the
problem disappears when the object is deleted. Rule: the trust domain is decided by the first reading of the files
and does not change while the mesh runs, because every issued certificate contains it and every proxy verifies it.
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
    """The parts of the mesh that admission uses; `local/engine.py` implements this protocol."""

    name: str
    control: ControlPlane
    addresses: Addresses


class LocalAdmission:
    def __init__(self, mesh: AdmittingMesh) -> None:
        self._mesh = mesh
        self._trust_domain: str | None = None  # set after the files have been read once

    def fix_trust_domain(self) -> str:
        """Return the mesh's trust domain. The first call takes it from the current settings; it does not change
        afterwards."""
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
        if not control.mesh.settings.origin:  # the mesh configuration was deleted
            control.note("access log", ())
            self._keep_trust_domain(changed)
        if any(key.kind in ("Service", "ServiceEntry") for key in changed):
            control.note("addresses", addresses.keep_services(control.mesh.services()))

    def _same_trust_domain(self, settings: Settings, running: str) -> Settings:
        if settings.trust_domain == running:
            self._mesh.control.note("trust domain", ())
            return settings
        wanted = settings.trust_domain
        what = f"the trust domain of a running mesh cannot change and stays {running}; `{wanted}` needs a restart"
        where = where_of(settings.origin, "" if settings.origin else "mesh configuration")
        hint = f"run: weft down {self._mesh.name}, then weft up"
        self._mesh.control.note("trust domain", [Problem(where, what, hint, Severity.WARNING)])
        return msgspec.structs.replace(settings, trust_domain=running)

    def _keep_trust_domain(self, changed: frozenset[ObjectKey]) -> None:
        """Keep the trust domain if the deletion of the mesh configuration has changed it: put settings with the
        running trust domain under the key of the deleted ConfigMap, and report the problem. `changed` are the
        keys of the objects that changed."""
        control, running = self._mesh.control, self.fix_trust_domain()
        settings = control.mesh.settings
        deleted = next((key for key in changed if key.kind == "ConfigMap" and not control.mesh.get(key)), None)
        if settings.trust_domain != running and deleted is not None:
            control.put(deleted, (msgspec.structs.replace(settings, trust_domain=running),))
            self._same_trust_domain(settings, running)
