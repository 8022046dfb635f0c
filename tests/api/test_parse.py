import copy
import string
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.reading import document, istio, read, told
from authority import Authority
from weft.api.document import Document
from weft.api.kinds import STANDARD_GATEWAY
from weft.api.parse import KINDS, OF_MESHES, parse
from weft.base.problem import Severity
from weft.model.names import ObjectKey

VALID = {
    "Service": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"
    "spec: {selector: {a: b}, clusterIP: 10.0.0.1, ports: [{name: http, port: 80, targetPort: 8080}]}",
    "Secret": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ntype: Opaque\n"
    f"data: {{cacert: {b64encode(Authority().root).decode()}}}",
    "Namespace": "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {b: c}}",
    "ServiceAccount": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}",
    "AuthorizationPolicy": istio(
        "AuthorizationPolicy",
        """
        selector: {matchLabels: {a: b}}
        action: DENY
        rules:
        - from: [{source: {principals: [a/b], notNamespaces: ["c*"], ipBlocks: [10.0.0.0/8], requestPrincipals: ["*"]}}]
          to: [{operation: {hosts: [a.b], methods: [GET], paths: [/a, "/{*}/b"], notPorts: ["80"]}}]
          when: [{key: "request.headers[x]", values: [a]}, {key: source.ip, notValues: [10.0.0.1]}]
        - from: [{source: {serviceAccounts: [a/b, c]}}]
        """,
    ).replace("networking", "security"),
    "ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n"
    "data: {mesh: 'connectTimeout: 3s'}",
    "ConfigMap with logs": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n"
    'data: {mesh: \'{accessLogFile: /a, accessLogEncoding: JSON, accessLogFormat: "{}", extensionProviders: [{name: a, '
    'envoyFileAccessLog: {logFormat: {labels: {b: "%PROTOCOL%"}}}}], defaultProviders: {accessLogging: [a]}}\'}',
    "VirtualService": istio(
        "VirtualService",
        """
        hosts: [a]
        gateways: [mesh, edge]
        exportTo: [.]
        http:
        - match: [{uri: {prefix: /a}, headers: {x: {exact: y}}, sourceLabels: {a: b}, port: 80}]
          route:
          - {destination: {host: a, subset: v1, port: {number: 80}}, weight: 90}
          - {destination: {host: b}, weight: 10}
          retries: {attempts: 2, perTryTimeout: 1s, retryOn: 5xx}
          fault: {delay: {fixedDelay: 1s, percentage: {value: 5}}, abort: {httpStatus: 500, percentage: {value: 5}}}
          corsPolicy: {allowOrigins: [{exact: a}], allowMethods: [GET], maxAge: 1s}
          headers: {request: {set: {a: b}, remove: [c]}}
          rewrite: {uri: /b}
          mirrors: [{destination: {host: c}}]
          timeout: 3s
        - redirect: {uri: /c, redirectCode: 302}
          match: [{uri: {regex: a.*}}]
        - directResponse: {status: 200, body: {string: a}}
        tls: [{match: [{sniHosts: [a], port: 443}], route: [{destination: {host: a}}]}]
        tcp: [{match: [{port: 90, destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: a}}]}]
        """,
    ),
    "DestinationRule": istio(
        "DestinationRule",
        """
        host: a
        subsets: [{name: v1, labels: {v: v1}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]
        trafficPolicy:
          loadBalancer: {consistentHash: {httpCookie: {name: a, ttl: 1s}}}
          connectionPool: {tcp: {maxConnections: 1, tcpKeepalive: {time: 1s}}, http: {http2MaxRequests: 5}}
          outlierDetection: {consecutive5xxErrors: 5, interval: 1s}
          tls: {mode: MUTUAL, clientCertificate: /a, privateKey: /b, caCertificates: /c, subjectAltNames: [d], sni: e.f}
          portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: RANDOM}}]
        """,
    ),
    "ServiceEntry": istio(
        "ServiceEntry",
        """
        hosts: [a.b]
        addresses: [10.0.0.1]
        resolution: STATIC
        location: MESH_INTERNAL
        ports: [{number: 80, name: http, protocol: HTTP}]
        endpoints: [{address: 10.0.0.2, ports: {http: 81}, labels: {a: b}, weight: 2}]
        """,
    ),
    "WorkloadEntry": istio(
        "WorkloadEntry", "{address: 10.0.0.1, labels: {a: b}, ports: {http: 80}, serviceAccount: a}"
    ),
    "Sidecar": istio(
        "Sidecar",
        """
        workloadSelector: {labels: {a: b}}
        ingress: [{port: {number: 80, protocol: HTTP}, defaultEndpoint: '127.0.0.1:80'}]
        egress: [{hosts: [./*]}]
        outboundTrafficPolicy: {mode: ALLOW_ANY}
        """,
    ),
    "Gateway": istio(
        "Gateway", "{selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.b]}]}"
    ),
    "Telemetry": istio(
        "Telemetry",
        """
        selector: {matchLabels: {a: b}}
        accessLogging:
        - {match: {mode: SERVER}, providers: [{name: envoy}], filter: {expression: response.code >= 400}}
        - disabled: true
        """,
    ).replace("networking", "telemetry"),
    "RequestAuthentication": istio(
        "RequestAuthentication",
        """
        selector: {matchLabels: {a: b}}
        jwtRules:
        - issuer: a
          audiences: [b]
          jwksUri: https://a.b/c
          fromHeaders: [{name: x-jwt, prefix: "Token "}]
          fromParams: [c]
          fromCookies: [d]
          outputPayloadToHeader: x-claims
          outputClaimToHeaders: [{claim: sub, header: x-sub}]
          timeout: 1s
        """,
    ).replace("networking", "security"),
    "PeerAuthentication": "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: a}\n"
    "spec: {selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}, portLevelMtls: {80: {mode: DISABLE}}}",
    "GatewayClass": "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: a}\n"
    "spec: {controllerName: weft.dev/gateway-controller}",
    **{
        kind: f"apiVersion: gateway.networking.k8s.io/v1\nkind: {kind.partition('.')[0]}\nmetadata: {{name: a}}\nspec: {spec}"
        for kind, spec in {
            STANDARD_GATEWAY: "{gatewayClassName: weft, listeners: [{name: http, port: 80, protocol: HTTP}]}",
            "ListenerSet": "{parentRef: {name: edge}, listeners: [{name: http, port: 80, protocol: HTTP}]}",
            "HTTPRoute": "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
            "GRPCRoute": "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
            "TLSRoute": "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
            "TCPRoute": "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
            "ReferenceGrant": "{from: [{group: '', kind: A, namespace: b}], to: [{group: '', kind: Service}]}",
            "BackendTLSPolicy": "{targetRefs: [{group: '', kind: Service, name: web}], "
            "validation: {hostname: a.b, wellKnownCACertificates: System}}",
        }.items()
    },
    "Workload": "apiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {name: a, annotations: {a: b}}\n"
    "spec: {command: [a], env: {A: b}, ports: [{name: http, port: 80}], readiness: {http: {port: http}, period: 1s}, "
    "excludeInboundPorts: [1], includeOutboundRanges: [10.0.0.0/8]}",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_an_example_that_is_read(kind):
    parsed = read(VALID[kind])
    assert parsed.problems == ()
    assert parsed.values
    assert all(found.origin.key.kind == kind for found in parsed.values)


def test_an_unknown_version_gets_a_hint_with_the_preferred_one():
    assert told("apiVersion: networking.istio.io/v2\nkind: VirtualService\nmetadata: {name: a}") == [
        "1 VirtualService has no version `networking.istio.io/v2` (write networking.istio.io/v1)"
    ]
    assert told("apiVersion: apps/v1\nkind: Service\nmetadata: {name: a}") == [
        "1 Service has no version `apps/v1` (write v1)"
    ]


def test_the_gateway_apis_gateway_is_another_kind():
    assert told("apiVersion: gateway.networking.k8s.io/v7\nkind: Gateway\nmetadata: {name: a}") == [
        "1 Gateway.gateway.networking.k8s.io has no version `gateway.networking.k8s.io/v7` "
        "(write gateway.networking.k8s.io/v1)"
    ]


def test_kinds_of_other_tools_are_ignored_with_a_warning():
    assert told("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}") == [
        "2 warning: a mesh on one machine does not run a Deployment: its pods are checked only for a cluster "
        "(to run a process here, write a Workload (weft.dev/v1alpha1))"
    ]
    assert told("apiVersion: v1\nkind: Node\nmetadata: {name: a}") == ["2 warning: weft does not read kind Node"]


def test_request_tests_may_be_in_the_same_files_and_only_their_errors_are_reported():
    head = "apiVersion: weft.dev/v1alpha1\nkind: RequestTest\nmetadata: {name: a, namespace: shop}\n"
    case = "spec: {requests: [{from: a, to: 'http://b/', expect: allowed}]}"
    assert told(head + case) == []
    assert told(head + case.replace("allowed", "maybe"))[0].startswith("4 ")


@pytest.mark.parametrize("kind", sorted(OF_MESHES))
def test_unsupported_mesh_kinds_get_a_hint_what_to_use_instead(kind):
    (line,) = told(f"apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: a}}")
    assert line.startswith(f"2 warning: weft does not read kind {kind}: the object has no effect (")


@pytest.mark.parametrize("kind", ["AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"])
@pytest.mark.parametrize("version", ["v1", "v9"])
def test_rejected_objects_that_restrict_access_fail_closed(kind, version):
    parsed = read(f"apiVersion: security.istio.io/{version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{what: 1}}")
    assert parsed.problems[0].severity is Severity.ERROR
    assert not parsed.values
    assert parsed.closed


def test_an_unknown_kind_gets_a_guess():
    assert told("apiVersion: x\nkind: VirtualServices\nmetadata: {name: a}") == [
        "2 unknown kind `VirtualServices` (did you mean `VirtualService`?)"
    ]


def test_a_body_that_is_too_deep_is_refused():
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    inner = body
    for _ in range(5_000):
        inner["spec"] = inner = {}
    found = parse(Document(ObjectKey("Service", "shop", "a"), "v1", body))
    assert [problem.what for problem in found.problems] == ["the object is nested deeper than 64 levels"]


def test_invalid_ports_do_not_break_the_probe():
    text = VALID["Workload"].replace("ports: [{name: http, port: 80}]", "ports: true")
    assert told(text) == [
        "4 `ports` must be a list, not true (begin each item with `- `)",
        "4 the workload has no port named `http` (name one of `ports`, or write its number)",
    ]


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, held in inner:
        yield from places(held, (*path, name))


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["*", "*.", "0s", "1s", "-1s", "unix://", "a/b", "~", "", ".", "65536", "\ud800", "(?=a)", "10.0.0.0/8"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_letters, max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_mutated_object_is_read_or_refused_but_never_raises(data):
    original = document(VALID[data.draw(st.sampled_from(sorted(VALID)))])
    body = copy.deepcopy(dict(original.body))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(
            st.sampled_from([path for path in places(body) if path and path[0] not in ("kind", "apiVersion")])
        )
        holder = body
        for part in path[:-1]:
            holder = holder[part]
        action = data.draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "remove":
            del holder[path[-1]]
            if not list(places(body))[3:]:
                break
        elif action == "replace" or isinstance(holder, list):
            holder[path[-1]] = data.draw(JUNK)
        else:
            holder[data.draw(st.text(max_size=8))] = data.draw(JUNK)
    changed = Document(original.key, original.api_version, body, original.file, "/x", 1, original.lines)
    parsed = parse(changed)
    refused = any(problem.severity is Severity.ERROR for problem in parsed.problems)
    assert not (refused and parsed.values)
    assert all(problem.where.line >= 1 and problem.where.file for problem in parsed.problems)
    for found in parsed.values:
        hash(found)  # values of the model are frozen at every level


def test_a_rejected_object_has_no_values_but_the_meant_ones():
    parsed = read("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: x}]}")
    assert parsed.values == ()
    assert [service.host for service in parsed.meant] == ["web.shop.svc.cluster.local"]
