from weft.mesh.credentials import CredentialIndex
from weft.model.credential import Credential
from weft.model.names import CredentialRef


def test_a_credential_is_found_by_name_until_it_is_removed():
    index = CredentialIndex()
    first, second = Credential("edge", "a", b"1"), Credential("edge", "a", b"2")
    index.add(first)
    index.add(second)
    assert index.of(CredentialRef("a", "edge")) is second
    assert list(index) == [second]
    index.remove(second)
    assert index.of(CredentialRef("a", "edge")) is None
