"""Every rule by which weft decides where objects say nothing, or several speak. Whoever tells why a resource is as it
is names rules from here; the reference page is made from this table.

Rule: a name means the same for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class DecisionRule(msgspec.Struct, frozen=True):
    name: str
    says: str  # one sentence
    page: str  # of docs/, where more is told


_RESOURCES, _TLS, _POLICIES = "resources.md", "mutual-tls.md", "authorization.md"
_TOKENS, _LOGS, _IDENTITY = "request-authentication.md", "access-log.md", "identity.md"
_BALANCING = "load-balancing.md"
_EDGE = "gateways.md"
_STANDARD = "gateway-api.md"
_ON_DEMAND = "on-demand.md"
_REQUEST, _CHANGE, _KUBERNETES = "life-of-a-request.md", "life-of-a-change.md", "kubernetes.md"

# At gateways

GATEWAY_LISTENER = DecisionRule(
    "gateway-listener",
    "Each port that Gateways with the proxy's labels serve has a listener; plain HTTP shares its routes, too.",
    _EDGE,
)
FIRST_GATEWAY = DecisionRule(
    "first-gateway",
    "A port speaks what the oldest Gateway's server speaks, and a name inside TLS is the first's that has it.",
    _EDGE,
)
MISSING_CREDENTIAL = DecisionRule(
    "missing-credential", "What the server shows is not there: its names are closed until it is.", _EDGE
)
MERGED_AT_GATEWAY = DecisionRule(
    "merged-at-gateway",
    "The routes of all VirtualServices that a Gateway has for one host are taken, the oldest first; what catches "
    "everything comes last.",
    _EDGE,
)
UNKNOWN_AT_GATEWAY = DecisionRule("unknown-at-gateway", "A host that no route is for is answered with 404.", _EDGE)
NAME_OF_ANOTHER_SERVER = DecisionRule(
    "name-of-another-server",
    "The host is another server's of this port: who asks for it in a connection for this one is answered with 421.",
    _EDGE,
)
HTTPS_ALONE = DecisionRule("https-alone", "The server has httpsRedirect: plain HTTP is sent to HTTPS.", _EDGE)
OUT_OF_SECRET = DecisionRule(
    "out-of-secret",
    "It holds what a Secret of the gateway's namespace holds; when that is renewed, so is it.",
    _EDGE,
)
FILES_OF_SERVER = DecisionRule(
    "files-of-server", "It names files of the proxy's file system, which it reads itself, and again if replaced.", _EDGE
)

GRANTED_SECRET = DecisionRule(
    "granted-secret", "The Secret is another namespace's, where a ReferenceGrant lets the Gateway use it.", _STANDARD
)

# By the Gateway API

STANDARD_ORDER = DecisionRule(
    "standard-order",
    "Rules of HTTPRoutes and GRPCRoutes are tried by how closely they match, whoever wrote them: exact paths, then "
    "longer prefixes, methods, more headers, more query parameters, and of equals the oldest.",
    _STANDARD,
)
NOBODY_TO_SEND_TO = DecisionRule(
    "nobody-to-send-to", "None of the rule's backends can be sent to, so it is answered with 500.", _STANDARD
)
CONSUMERS_FIRST = DecisionRule(
    "consumers-first",
    "Routes of the caller's own namespace hold, at their ports, in the place of those of the Service's own.",
    _STANDARD,
)
VIRTUAL_SERVICE_FIRST = DecisionRule(
    "virtual-service-first",
    "A VirtualService has routes for the host, so that those of the Gateway API are not used.",
    _STANDARD,
)
TLS_BY_POLICY = DecisionRule(
    "tls-by-policy",
    "A BackendTLSPolicy has the Service called over TLS, unless a DestinationRule speaks of TLS.",
    _STANDARD,
)
POLICY_WITHOUT_ROOTS = DecisionRule(
    "policy-without-roots",
    "Whom the BackendTLSPolicy believes cannot be known, so nobody is called until it can.",
    _STANDARD,
)
ROOTS_OUT_OF_CONFIG_MAP = DecisionRule(
    "roots-out-of-config-map",
    "It holds the certificates in `ca.crt` of the ConfigMaps that are named; when these change, so does it.",
    _STANDARD,
)

# What there is at all

BOOTSTRAP = DecisionRule(
    "bootstrap", "It is part of what every proxy is started with; the control plane sends nothing of it.", _REQUEST
)
CLUSTER_PER_PORT = DecisionRule(
    "cluster-per-port", "Each port of a service that the proxy may see has a cluster.", _REQUEST
)
CLUSTER_OF_ROUTE = DecisionRule(
    "cluster-of-route",
    "The Sidecar does not show it, and routes of what it shows lead there: it can be called by these alone.",
    _RESOURCES,
)
CLUSTER_PER_SUBSET = DecisionRule(
    "cluster-per-subset",
    "Each subset of the DestinationRule has a cluster of its own at each port of the host.",
    _RESOURCES,
)
CLUSTER_PER_INBOUND_PORT = DecisionRule(
    "cluster-per-inbound-port",
    "Each port on which the workload is called has a cluster that leads to the workload.",
    _REQUEST,
)
PORT_WITHOUT_SERVICE = DecisionRule(
    "port-without-service", "No service names the port: the workload's own word about it counts.", _RESOURCES
)
INGRESS_REPLACES_SERVICES = DecisionRule(
    "ingress-replaces-services",
    "The ports of a Sidecar's ingress stand in the place of those that services name.",
    _RESOURCES,
)
INBOUND_LISTENER = DecisionRule(
    "inbound-listener",
    "All calls to the workload arrive at one listener, which has filter chains for each port.",
    _REQUEST,
)
INBOUND_REST = DecisionRule(
    "inbound-rest", "A call to a port that nobody names goes on to the workload, past the same guards.", _REQUEST
)
INBOUND_LOOP = DecisionRule(
    "loop-guard", "A connection to the proxy's own port would go round for ever, and goes nowhere.", _REQUEST
)
OUTBOUND_LISTENER = DecisionRule(
    "outbound-listener",
    "All calls of the workload arrive at one listener, which hands each to the one of its destination.",
    _REQUEST,
)
HELD_CALLS = DecisionRule(
    "held-calls",
    "A call to a service that the proxy has not been told of is held until it is, and then goes on as any other.",
    _ON_DEMAND,
)
LISTENER_PER_HTTP_PORT = DecisionRule(
    "listener-per-http-port",
    "HTTP services with one port number share a listener; the routes tell their hosts apart.",
    _REQUEST,
)
LISTENER_PER_ADDRESS = DecisionRule(
    "listener-per-address",
    "A port that is not declared HTTP has a listener on each address that means only this service.",
    _REQUEST,
)
CHAIN_ON_SHARED_PORT = DecisionRule(
    "chain-on-shared-port",
    "A service without an address has a filter chain on the listener that its port number shares.",
    _REQUEST,
)
FIRST_CLAIM = DecisionRule(
    "first-claim", "Of those that claim one name or address, the first by name has it.", _RESOURCES
)
ROUTES_PER_PORT = DecisionRule(
    "routes-per-port",
    "HTTP ports with one number share a route configuration, with a virtual host for each service.",
    _REQUEST,
)
SIDECAR_SCOPE = DecisionRule("sidecar-scope", "A Sidecar limits the hosts that the proxy may see.", _RESOURCES)
NEAREST_SIDECAR = DecisionRule(
    "nearest-sidecar",
    "A Sidecar that selects the workload beats its namespace's, and that one the root namespace's.",
    _RESOURCES,
)

# Routes

ROUTE_TO_SERVICE = DecisionRule(
    "route-to-service", "No VirtualService says otherwise: every request goes to the service that it names.", _RESOURCES
)
ONE_VIRTUAL_SERVICE = DecisionRule(
    "one-virtual-service",
    "Several VirtualServices speak for the host: the oldest decides, and the others are not merged into it.",
    _RESOURCES,
)
EXACT_HOST_FIRST = DecisionRule(
    "exact-host-first",
    "A VirtualService for the host itself beats one for a wildcard, and a longer wildcard a shorter one.",
    _RESOURCES,
)
ROUTES_IN_ORDER = DecisionRule(
    "routes-in-order",
    "Routes are tried in the order in which they are written; behind one that takes everything, none is sent.",
    _RESOURCES,
)
DELEGATED = DecisionRule(
    "delegated",
    "The root's match is joined with the delegate's; where the delegate says nothing, the root's fields hold.",
    _RESOURCES,
)
ROUTES_FOR_OTHERS = DecisionRule(
    "routes-for-others",
    "None of the VirtualService's routes is for this caller and port: it is as if there were none.",
    _RESOURCES,
)
NO_TIMEOUT = DecisionRule("no-timeout", "There is no timeout, unless the route has one.", _RESOURCES)
RETRIES = DecisionRule(
    "retries",
    "A request that fails before anybody has read it is tried 2 times more, unless the route says otherwise.",
    _RESOURCES,
)
RETRIES_TO_WORKLOAD = DecisionRule(
    "retries-to-workload",
    "A request is sent to the workload again, at most twice, if a kept connection was closed under it.",
    _REQUEST,
)
DESTINATION_PORT = DecisionRule(
    "destination-port",
    "The destination names no port: it is the service's only one, or else the one that was called.",
    _RESOURCES,
)
HASH_FROM_RULE = DecisionRule(
    "hash-from-rule",
    "What is hashed stands in the DestinationRule of the destination; Envoy wants it in the route.",
    _RESOURCES,
)
OUTBOUND_ALLOW_ANY = DecisionRule(
    "allow-any",
    "Calls to what the mesh does not know go where they were meant to go (ALLOW_ANY), which is the default.",
    _RESOURCES,
)
OUTBOUND_BY_MESH = DecisionRule(
    "outbound-policy-of-mesh",
    "What becomes of calls to unknown hosts is said by the mesh's outboundTrafficPolicy.",
    _RESOURCES,
)
OUTBOUND_BY_SIDECAR = DecisionRule(
    "outbound-policy-of-sidecar",
    "What becomes of calls to unknown hosts is said by the Sidecar, which beats the mesh.",
    _RESOURCES,
)

# Clusters

NEAREST_RULE = DecisionRule(
    "nearest-destination-rule",
    "Of DestinationRules for a host the caller's namespace has the first word, then the service's, then the root's; "
    "the host itself beats a wildcard, and the oldest its equals.",
    _RESOURCES,
)
RULES_MERGED = DecisionRule(
    "destination-rules-merged",
    "DestinationRules of one namespace for the same host are merged: everybody's subsets, and the oldest traffic "
    "policy.",
    _RESOURCES,
)
PORT_REPLACES_HOST = DecisionRule(
    "port-replaces-level",
    "portLevelSettings stand for everything of their level, also for what they do not mention.",
    _RESOURCES,
)
SUBSET_OVER_HOST = DecisionRule(
    "subset-over-host", "A subset's trafficPolicy overrides the host's, field by field.", _RESOURCES
)
CONNECT_TIMEOUT = DecisionRule(
    "connect-timeout",
    "A connection may take 10 s to be made, unless the mesh or a DestinationRule says otherwise.",
    _RESOURCES,
)
CONNECT_TIMEOUT_OF_MESH = DecisionRule(
    "connect-timeout-of-mesh", "The mesh's connectTimeout holds where no DestinationRule says otherwise.", _RESOURCES
)
NO_LIMITS = DecisionRule(
    "no-limits",
    "Circuit breakers never trip by default: a limit that nobody asked for must not drop anyone's request.",
    _RESOURCES,
)
RETRY_BUDGET = DecisionRule(
    "retry-budget",
    "Retries are at most 20 % of the requests under way, and 3 in any case, unless a DestinationRule says otherwise.",
    _BALANCING,
)
POOL_OF_SIDECAR = DecisionRule(
    "pool-of-sidecar",
    "A connection pool of the workload's Sidecar beats that of the DestinationRule: an ingress listener's own first, "
    "then inboundConnectionPool.",
    _RESOURCES,
)
LEAST_REQUEST = DecisionRule(
    "least-request",
    "The endpoint with the fewest requests under way is chosen, unless a DestinationRule says otherwise.",
    _RESOURCES,
)
NO_EJECTION = DecisionRule(
    "no-ejection", "Endpoints are never ejected, unless a DestinationRule has an outlierDetection.", _RESOURCES
)
LOCALITY_BY_RULE = DecisionRule(
    "locality-by-rule",
    "The localityLbSetting of the DestinationRule says which places are asked first, and how much each gets.",
    _BALANCING,
)
LOCALITY_BY_MESH = DecisionRule(
    "locality-by-mesh",
    "The mesh's localityLbSetting says which places are asked first, where no DestinationRule has one.",
    _BALANCING,
)
LOCALITY_FAILOVER = DecisionRule(
    "locality-failover",
    "With outlierDetection the caller's own zone is asked first, then its region, then the others, unless a "
    "localityLbSetting says otherwise.",
    _BALANCING,
)
ENDPOINTS_BY_EDS = DecisionRule(
    "endpoints-sent", "The control plane sends who answers, and sends it again whenever that changes.", _REQUEST
)
ENDPOINTS_BY_DNS = DecisionRule("endpoints-by-dns", "The proxy itself looks up the names of the endpoints.", _RESOURCES)
ENDPOINTS_AS_CALLED = DecisionRule("as-called", "The call goes to the very address that the caller wrote.", _RESOURCES)
AUTO_MTLS = DecisionRule(
    "auto-mtls",
    "Each endpoint that has a proxy is called over the mesh's TLS, the others in plaintext, by default.",
    _TLS,
)
NO_AUTO_MTLS = DecisionRule(
    "no-auto-mtls",
    "The mesh has enableAutoMtls: false, so calls are plaintext unless a DestinationRule says otherwise.",
    _TLS,
)
NO_TLS_OUTSIDE = DecisionRule(
    "no-tls-outside",
    "A host outside of the mesh is called as the application calls it, unless a DestinationRule says otherwise.",
    _TLS,
)
TLS_BY_RULE = DecisionRule("tls-by-rule", "A DestinationRule's tls beats what the mesh would do by itself.", _TLS)
CLOSED_RULE = DecisionRule(
    "refused-rule-closed", "The tls of the DestinationRule could not be understood, so nobody is called.", _TLS
)
HTTP2_BETWEEN_PROXIES = DecisionRule(
    "http2-between-proxies",
    "Between two proxies of the mesh HTTP is HTTP/2, unless a DestinationRule says DO_NOT_UPGRADE.",
    _REQUEST,
)
HTTP_AS_DECLARED = DecisionRule("http-as-declared", "The port is spoken to as it is declared.", _REQUEST)
HTTP_AS_CALLED = DecisionRule("http-as-called", "The connection speaks whatever the caller speaks.", _REQUEST)
UNKNOWN_HOSTS = DecisionRule(
    "unknown-hosts", "Calls to what the mesh does not know take this way, if they are allowed.", _RESOURCES
)
BLACK_HOLE = DecisionRule(
    "black-hole", "What must not go anywhere is sent to this cluster, which has nobody in it.", _REQUEST
)
KEY_SERVER = DecisionRule(
    "key-server", "The proxy itself fetches an issuer's keys, by a cluster for their server.", _TOKENS
)

# Who answers

READY_ENDPOINTS = DecisionRule(
    "ready-endpoints", "Those answer whom the service's selector selects and who are ready.", _RESOURCES
)
NOT_READY_ENDPOINTS = DecisionRule(
    "not-ready-endpoints", "The service has publishNotReadyAddresses: those answer, too, who are not ready.", _RESOURCES
)
ENDPOINTS_BY_SLICE = DecisionRule(
    "endpoints-by-slice", "The EndpointSlices of the service say who answers.", _KUBERNETES
)
WRITTEN_ENDPOINTS = DecisionRule(
    "written-endpoints", "The endpoints are those that the ServiceEntry lists.", _RESOURCES
)
SUBSET_BY_LABELS = DecisionRule(
    "subset-by-labels", "Of the service's endpoints a subset has those with its labels.", _RESOURCES
)
ENDPOINT_TLS = DecisionRule(
    "endpoint-tls", "The endpoint has a proxy that takes the mesh's TLS at this port, so it is marked for it.", _TLS
)
ENDPOINT_PLAIN = DecisionRule(
    "endpoint-plaintext",
    "The endpoint has no proxy at this port, or takes no TLS there: it is called in plaintext.",
    _TLS,
)

# Who is let in

PERMISSIVE = DecisionRule(
    "permissive", "The mesh's TLS and plaintext are both taken (PERMISSIVE), which is the default.", _TLS
)
PEER_LEVELS = DecisionRule(
    "peer-authentication-levels",
    "Of PeerAuthentications the narrower level decides: port, workload, namespace, mesh; and the oldest of a level.",
    _TLS,
)
PROTOCOL_DECLARED = DecisionRule(
    "protocol-declared", "The port is declared, so nobody waits to find out what it speaks.", _REQUEST
)
CALLERS_TOLD_APART = DecisionRule(
    "callers-told-apart",
    "Services say different things of the port: a caller's proxy says what it brings; about others the oldest decides, "
    "and first bytes where that one says HTTP and another declares something else.",
    _REQUEST,
)
PROTOCOL_DETECTED = DecisionRule(
    "protocol-detected", "The port's protocol is not declared: the first bytes tell HTTP from anything else.", _REQUEST
)
DETECTION_TIMEOUT = DecisionRule(
    "detection-timeout",
    "First bytes are waited for at most 1 s, unless the mesh's protocolDetectionTimeout says otherwise.",
    _REQUEST,
)
DETECTION_TIMEOUT_OF_MESH = DecisionRule(
    "detection-timeout-of-mesh", "How long first bytes are waited for is the mesh's protocolDetectionTimeout.", _REQUEST
)
DENY = DecisionRule(
    "deny-before-allow",
    "Policies are asked in the order CUSTOM, AUDIT, DENY, ALLOW; one DENY that matches denies.",
    _POLICIES,
)
ALLOW = DecisionRule(
    "allow-denies-the-rest",
    "Where an ALLOW policy selects the workload, whatever no ALLOW rule matches is denied.",
    _POLICIES,
)
CUSTOM = DecisionRule(
    "custom-first", "What a CUSTOM policy matches is asked of its authorizer, before any other policy.", _POLICIES
)
AUDIT = DecisionRule(
    "audit-notes", "What an AUDIT policy matches is marked for the access log, and decides nothing.", _POLICIES
)
DRY_RUN = DecisionRule(
    "dry-run-notes", "A policy on dry run is only noted: what it would say stands in the access log.", _POLICIES
)
NO_AUTHORIZER = DecisionRule(
    "no-authorizer",
    "Nobody can be asked what a CUSTOM policy wants asked, so whatever it matches is denied.",
    _POLICIES,
)
REFUSED_POLICY = DecisionRule(
    "refused-policy-denies",
    "The policy could not be enforced as it is written: it denies everything until it is mended.",
    _POLICIES,
)
DISGUISES = DecisionRule(
    "disguises-denied",
    "Spellings of paths and headers that only serve to get round a policy are denied where one looks at them.",
    _POLICIES,
)
MESH_POLICIES_FIRST = DecisionRule(
    "policies-add-up",
    "Policies of the root namespace, the namespace and the workload all hold; none replaces another.",
    _POLICIES,
)
TOKEN_OPTIONAL = DecisionRule(
    "token-optional", "A request without a token passes and has no principal; one with a bad token is refused.", _TOKENS
)
REFUSED_AUTHENTICATION = DecisionRule(
    "refused-authentication-denies",
    "Whom to believe could not be understood, so nobody gets in until it is mended.",
    _TOKENS,
)
NO_ACCESS_LOG = DecisionRule(
    "no-access-log", "Requests are not logged, unless the mesh or a Telemetry asks for it.", _LOGS
)
ACCESS_LOG_OF_MESH = DecisionRule(
    "access-log-of-mesh", "The mesh's accessLogFile or default provider says where requests are logged.", _LOGS
)
TELEMETRY_LEVELS = DecisionRule(
    "telemetry-levels",
    "Of Telemetries the narrower level decides: workload over namespace over mesh, and the oldest of a level.",
    _LOGS,
)

# Certificates

WORKLOAD_CERTIFICATE = DecisionRule(
    "workload-certificate",
    "Each pod has a certificate of its service account, by its machine's agent, renewed in time.",
    _IDENTITY,
)
MESH_ROOTS = DecisionRule("mesh-roots", "Proxies trust the roots of their mesh, by their machine's agent.", _IDENTITY)
FILES_OF_RULE = DecisionRule(
    "files-of-rule",
    "TLS towards others uses the files that the DestinationRule names; without caCertificates, the system's roots.",
    _TLS,
)

# When Envoy says no

LAST_ACCEPTED = DecisionRule(
    "last-accepted", "Envoy refused the newer version, so the last one that it took stays.", _CHANGE
)

RULES: Mapping[str, DecisionRule] = {
    value.name: value for value in tuple(globals().values()) if isinstance(value, DecisionRule)
}
