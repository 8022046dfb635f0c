import pytest

from api.gateway_api.objects import standard
from api.reading import told, value
from weft.model.gateway_api import GrantSource, GrantTarget

GROUP = "gateway.networking.k8s.io"


def test_reads_sources_and_targets_of_a_grant():
    found = value(
        standard(
            "ReferenceGrant",
            f"""
            from: [{{group: {GROUP}, kind: HTTPRoute, namespace: far}}]
            to: [{{group: "", kind: Service, name: web}}, {{group: "", kind: Secret}}]
            """,
            "v1beta1",
        )
    )
    route = GrantSource(GROUP, "HTTPRoute", "far")
    assert found.allows(route, GrantTarget("", "Service", "web"))
    assert found.allows(route, GrantTarget("", "Secret", "any"))
    assert not found.allows(route, GrantTarget("", "Service", "other"))
    assert not found.allows(GrantSource(GROUP, "HTTPRoute", "near"), GrantTarget("", "Service", "web"))


def test_both_sides_must_be_named():
    assert told(standard("ReferenceGrant", "from: []\nto: [{kind: Service}]", "v1")) == [
        "5 `from` must not be empty",
        '6 warning: without `group` a cluster rejects the ReferenceGrant (write group: "")',
    ]


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (f"group: {GROUP}, kind: HTTPRoute", 'group: "", kind: Service', []),
        (f"group: {GROUP}, kind: UDPRoute", 'group: "", kind: Service', []),
        ('group: "", kind: PersistentVolumeClaim', "group: snapshot.storage.k8s.io, kind: VolumeSnapshot", []),
        (
            f"group: {GROUP}, kind: HttpRoute",
            'group: "", kind: Service',
            [
                "5 warning: there is no kind `HttpRoute` that needs a grant: this entry has no effect (did you mean "
                "`HTTPRoute`?)"
            ],
        ),
        (
            "kind: Gateway",
            'group: "", kind: Secret',
            ["5 warning: a Gateway is not in the core group: this entry has no effect (write group: " + GROUP + ")"],
        ),
        (
            f"group: {GROUP}, kind: Gateway",
            'group: "", kind: secrets',
            ["6 warning: there is no kind `secrets`: this entry has no effect (did you mean `Secret`?)"],
        ),
    ],
)
def test_entries_that_grant_nothing_are_reported(source, target, said):
    text = f"from: [{{{source}, namespace: far}}]\nto: [{{{target}}}]"
    assert told(standard("ReferenceGrant", text, "v1")) == said
