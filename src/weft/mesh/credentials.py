"""Index of Secrets (credentials) by namespace and name. `mesh.py` owns it."""

from __future__ import annotations

from collections.abc import Iterator

from weft.model.credential import Credential
from weft.model.names import CredentialRef


class CredentialIndex:
    def __init__(self) -> None:
        self._by_name: dict[CredentialRef, Credential] = {}

    def __iter__(self) -> Iterator[Credential]:
        return iter(self._by_name.values())

    def add(self, credential: Credential) -> None:
        self._by_name[credential.reference] = credential

    def remove(self, credential: Credential) -> None:
        self._by_name.pop(credential.reference, None)

    def of(self, reference: CredentialRef) -> Credential | None:
        return self._by_name.get(reference)
