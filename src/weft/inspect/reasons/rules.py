"""Table of the rules by which weft decides if no object sets a value, or if several objects set it. `weft why` and
the option `--why` name these rules as reasons for a resource; docs/reference/rules.md is generated from this
table.

Rule: once a rule has a name, the meaning of that name never changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class DecisionRule(msgspec.Struct, frozen=True):
    name: str
    says: str  # the rule in one sentence
    page: str  # page in docs/ with the details


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
    "Each port that is served by a Gateway whose selector matches the proxy's labels has a listener; a port of plain "
    "HTTP has a route configuration too.",
    _EDGE,
)
FIRST_GATEWAY = DecisionRule(
    "first-gateway",
    "The first server of a port decides the protocol of the port, and the first server with an SNI host gets that "
    "host. Servers are in the order of their Gateways: the oldest first or, without creation times, by "
    "namespace and name.",
    _EDGE,
)
MISSING_CREDENTIAL = DecisionRule(
    "missing-credential",
    "The server's certificate does not exist: connections for the server's hosts are closed until the certificate "
    "exists.",
    _EDGE,
)
MERGED_AT_GATEWAY = DecisionRule(
    "merged-at-gateway",
    "The routes of all VirtualServices that are bound to the Gateway for one host are merged. VirtualServices with a "
    "narrower `exportTo` come first, among equals the oldest. A route that matches every request comes last.",
    _EDGE,
)
UNKNOWN_AT_GATEWAY = DecisionRule("unknown-at-gateway", "A request for a host without a route gets a 404.", _EDGE)
NAME_OF_ANOTHER_SERVER = DecisionRule(
    "name-of-another-server",
    "The host belongs to another server of this port: on a connection to this server, a request for that host gets a "
    "421.",
    _EDGE,
)
HTTPS_ALONE = DecisionRule("https-alone", "The server has httpsRedirect: plain HTTP is redirected to HTTPS.", _EDGE)
OUT_OF_SECRET = DecisionRule(
    "out-of-secret",
    "The content comes from a Kubernetes Secret in the gateway's namespace and is updated when that Secret changes.",
    _EDGE,
)
FILES_OF_SERVER = DecisionRule(
    "files-of-server",
    "The server names files in the proxy's file system; the proxy reads these files, and reads them again when they "
    "are replaced.",
    _EDGE,
)

GRANTED_SECRET = DecisionRule(
    "granted-secret", "The Secret is in another namespace, where a ReferenceGrant lets the Gateway use it.", _STANDARD
)

# Gateway API

STANDARD_ORDER = DecisionRule(
    "standard-order",
    "The rules of all HTTPRoutes and GRPCRoutes are tried in one order, the most specific first: exact paths, then "
    "longer prefixes, methods, more headers, more query parameters. Among equal rules, those of the oldest route "
    "come first.",
    _STANDARD,
)
NOBODY_TO_SEND_TO = DecisionRule(
    "nobody-to-send-to", "None of the rule's backends can receive requests, so the request gets a 500.", _STANDARD
)
CONSUMERS_FIRST = DecisionRule(
    "consumers-first",
    "Routes in the caller's namespace replace the routes in the Service's namespace, at the ports that the routes in "
    "the caller's namespace name.",
    _STANDARD,
)
VIRTUAL_SERVICE_FIRST = DecisionRule(
    "virtual-service-first",
    "A VirtualService has routes for the host, so the routes of the Gateway API are not used.",
    _STANDARD,
)
TLS_BY_POLICY = DecisionRule(
    "tls-by-policy",
    "A BackendTLSPolicy makes callers use TLS to the Service, unless a DestinationRule sets tls.",
    _STANDARD,
)
POLICY_WITHOUT_ROOTS = DecisionRule(
    "policy-without-roots",
    "The CA certificates of the BackendTLSPolicy cannot be determined. Until they can be, calls to its Service fail.",
    _STANDARD,
)
ROUTES_BY_ADDRESS = DecisionRule(
    "routes-by-address",
    "Routes of the Gateway API that are attached to a Service apply to all requests to its addresses, whatever host a "
    "request names.",
    _STANDARD,
)
CLIENT_CERTIFICATE = DecisionRule(
    "client-certificate",
    "The Gateway names, in tls.backend, the Secret with the client certificate that it presents to Services with a "
    "BackendTLSPolicy.",
    _STANDARD,
)
WITHOUT_CLIENT_CERTIFICATE = DecisionRule(
    "without-client-certificate",
    "The client certificate that the Gateway names in tls.backend cannot be used. Until it can be, calls to Services "
    "with a BackendTLSPolicy fail.",
    _STANDARD,
)
ROOTS_OUT_OF_CONFIG_MAP = DecisionRule(
    "roots-out-of-config-map",
    "The content comes from `ca.crt` of the ConfigMaps that the policy or listener names, and is updated when these "
    "ConfigMaps change.",
    _STANDARD,
)

# Which resources exist

BOOTSTRAP = DecisionRule(
    "bootstrap",
    "The resource is part of the bootstrap that every proxy is started with; the control plane does not send it.",
    _REQUEST,
)
CLUSTER_PER_PORT = DecisionRule(
    "cluster-per-port", "Each port of a service that the proxy may see has a cluster.", _REQUEST
)
CLUSTER_OF_ROUTE = DecisionRule(
    "cluster-of-route",
    "The Sidecar does not import this service, but it imports another service with a route to this one: only that "
    "route can reach this service.",
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
    "port-without-service",
    "No service names the port, so the workload's own declaration of the port is used.",
    _RESOURCES,
)
INGRESS_REPLACES_SERVICES = DecisionRule(
    "ingress-replaces-services",
    "The ports in a Sidecar's ingress replace the ports that services name.",
    _RESOURCES,
)
INBOUND_LISTENER = DecisionRule(
    "inbound-listener",
    "All calls to the workload arrive at one listener, which has filter chains for each port.",
    _REQUEST,
)
INBOUND_REST = DecisionRule(
    "inbound-rest",
    "A call to a port that no service names is passed to the workload, after the same policies as a call to any other "
    "port.",
    _REQUEST,
)
INBOUND_LOOP = DecisionRule(
    "loop-guard", "A connection to the proxy's own port would loop for ever, so it is closed.", _REQUEST
)
OUTBOUND_LISTENER = DecisionRule(
    "outbound-listener",
    "All calls of the workload arrive at one listener, which passes each call to the listener of its destination.",
    _REQUEST,
)
HELD_CALLS = DecisionRule(
    "held-calls",
    "A call to a service whose cluster the proxy does not have yet is held until the control plane has sent the "
    "cluster (on-demand CDS), and then proceeds as usual.",
    _ON_DEMAND,
)
LISTENER_PER_HTTP_PORT = DecisionRule(
    "listener-per-http-port",
    "HTTP services with the same port number share a listener; the routes distinguish their hosts.",
    _REQUEST,
)
LISTENER_PER_ADDRESS = DecisionRule(
    "listener-per-address",
    "A port that is not declared HTTP, or whose Service has attached routes of the Gateway API, has a listener on each "
    "address that belongs to this service alone.",
    _REQUEST,
)
CHAIN_ON_SHARED_PORT = DecisionRule(
    "chain-on-shared-port",
    "A service without an address has a filter chain on the listener that all services with the same port number "
    "share.",
    _REQUEST,
)
FIRST_CLAIM = DecisionRule(
    "first-claim", "If several objects claim the same name or address, the first object by name gets it.", _RESOURCES
)
ROUTES_PER_PORT = DecisionRule(
    "routes-per-port",
    "HTTP ports with the same number share a route configuration, with a virtual host for each service.",
    _REQUEST,
)
SIDECAR_SCOPE = DecisionRule("sidecar-scope", "A Sidecar limits the hosts that the proxy may see.", _RESOURCES)
OWN_LISTENER = DecisionRule(
    "sidecar-own-listener",
    "A Sidecar declares a listener with an address of its own (`bind` or `captureMode: NONE`), in place of the "
    "addresses of services.",
    _RESOURCES,
)
NEAREST_SIDECAR = DecisionRule(
    "nearest-sidecar",
    "A Sidecar that selects the workload takes precedence over the Sidecar of its namespace, which takes precedence "
    "over the Sidecar of the root namespace.",
    _RESOURCES,
)

# Routes

ROUTE_TO_SERVICE = DecisionRule(
    "route-to-service",
    "No VirtualService applies: every request goes to the service whose host the request names.",
    _RESOURCES,
)
ONE_VIRTUAL_SERVICE = DecisionRule(
    "one-virtual-service",
    "Several VirtualServices are for the host, and only one is used: one that is private to the caller's namespace, "
    "otherwise one that is exported to this namespace by name, otherwise a public one; among equals, the oldest.",
    _RESOURCES,
)
EXACT_HOST_FIRST = DecisionRule(
    "exact-host-first",
    "A VirtualService for the exact host takes precedence over one for a wildcard, and a longer wildcard over a "
    "shorter one.",
    _RESOURCES,
)
ROUTES_IN_ORDER = DecisionRule(
    "routes-in-order",
    "Routes are tried in the order in which they are written; routes after a route that matches every request are not "
    "sent to proxies.",
    _RESOURCES,
)
DELEGATED = DecisionRule(
    "delegated",
    "The match of the delegating route is combined with the match of the delegate's route; fields that the delegate's "
    "route leaves unset come from the delegating route.",
    _RESOURCES,
)
ROUTES_FOR_OTHERS = DecisionRule(
    "routes-for-others",
    "None of the VirtualService's routes applies to this caller and port, so the VirtualService is treated as absent.",
    _RESOURCES,
)
NO_TIMEOUT = DecisionRule("no-timeout", "There is no timeout, unless the route has one.", _RESOURCES)
RETRIES = DecisionRule(
    "retries",
    "A request that fails before a server has read it is retried twice, unless the route sets retries.",
    _RESOURCES,
)
RETRIES_OF_MESH = DecisionRule(
    "retries-of-mesh",
    "The route sets no retries, so the MeshConfig's `defaultHttpRetryPolicy` decides.",
    _RESOURCES,
)
RETRIES_TO_WORKLOAD = DecisionRule(
    "retries-to-workload",
    "A request that was sent to the workload on a reused connection is sent again, at most twice, if the workload had "
    "closed that connection meanwhile.",
    _REQUEST,
)
DESTINATION_PORT = DecisionRule(
    "destination-port",
    "The destination names no port: if the service has one port, that port is used; if the service has several, the "
    "port that was called.",
    _RESOURCES,
)
HASH_FROM_RULE = DecisionRule(
    "hash-from-rule",
    "The route has the hash key that the destination's DestinationRule sets, because Envoy reads the key from the "
    "route.",
    _RESOURCES,
)
OUTBOUND_ALLOW_ANY = DecisionRule(
    "allow-any",
    "Calls to unknown hosts go to their original destination (ALLOW_ANY), which is the default.",
    _RESOURCES,
)
OUTBOUND_BY_MESH = DecisionRule(
    "outbound-policy-of-mesh",
    "The mesh's outboundTrafficPolicy decides what happens to calls to unknown hosts.",
    _RESOURCES,
)
OUTBOUND_BY_SIDECAR = DecisionRule(
    "outbound-policy-of-sidecar",
    "The Sidecar's outboundTrafficPolicy decides what happens to calls to unknown hosts; it overrides the mesh's.",
    _RESOURCES,
)

# Clusters

NEAREST_RULE = DecisionRule(
    "nearest-destination-rule",
    "DestinationRules for a host are looked up in the caller's namespace first, then the service's, then the root "
    "namespace. A rule for the exact host takes precedence over a rule for a wildcard; if several rules are for the "
    "same host or wildcard, the oldest one does.",
    _RESOURCES,
)
RULES_MERGED = DecisionRule(
    "destination-rules-merged",
    "DestinationRules in one namespace for the same host are merged: the subsets of all of them are used, and the "
    "traffic policy of the oldest rule that has one.",
    _RESOURCES,
)
PORT_REPLACES_HOST = DecisionRule(
    "port-replaces-level",
    "portLevelSettings replace the whole traffic policy of the host or subset that contains them, including fields "
    "that they do not mention.",
    _RESOURCES,
)
SUBSET_OVER_HOST = DecisionRule(
    "subset-over-host", "A subset's trafficPolicy overrides the host's, field by field.", _RESOURCES
)
CONNECT_TIMEOUT = DecisionRule(
    "connect-timeout",
    "The connect timeout is 10 s, unless the mesh or a DestinationRule sets another.",
    _RESOURCES,
)
CONNECT_TIMEOUT_OF_MESH = DecisionRule(
    "connect-timeout-of-mesh", "The mesh's connectTimeout applies where no DestinationRule sets one.", _RESOURCES
)
NO_LIMITS = DecisionRule(
    "no-limits",
    "Circuit breakers never trip by default: a limit that was not configured must not drop requests.",
    _RESOURCES,
)
RETRY_BUDGET = DecisionRule(
    "retry-budget",
    "Retries are limited to 20 % of the active requests, but 3 are always allowed, unless a DestinationRule sets "
    "a budget.",
    _BALANCING,
)
POOL_OF_SIDECAR = DecisionRule(
    "pool-of-sidecar",
    "A connection pool in the workload's Sidecar overrides the DestinationRule's. The pool of an ingress listener "
    "overrides inboundConnectionPool.",
    _RESOURCES,
)
LEAST_REQUEST = DecisionRule(
    "least-request",
    "Two endpoints are picked at random, and the one with fewer active requests is called, unless a DestinationRule "
    "sets a load balancer.",
    _RESOURCES,
)
NO_EJECTION = DecisionRule(
    "no-ejection", "Endpoints are never ejected, unless a DestinationRule has an outlierDetection.", _RESOURCES
)
ALL_EJECTABLE = DecisionRule(
    "all-ejectable",
    "Calls fail over to other localities, so all endpoints may be ejected, unless the outlierDetection sets "
    "`maxEjectionPercent`. If less than half of the endpoints are healthy and no other locality can take the calls, "
    "ejected endpoints are called, too.",
    _BALANCING,
)
TENTH_EJECTABLE = DecisionRule(
    "tenth-ejectable",
    "At most 10 % of the endpoints are ejected, rounded down, unless the outlierDetection sets `maxEjectionPercent`.",
    _BALANCING,
)
LOCALITY_BY_RULE = DecisionRule(
    "locality-by-rule",
    "The DestinationRule's localityLbSetting decides which localities are preferred, and the share of each.",
    _BALANCING,
)
LOCALITY_BY_SERVICE = DecisionRule(
    "locality-by-service",
    "The service's trafficDistribution prefers endpoints in the caller's zone, then in its region, where no "
    "DestinationRule has a localityLbSetting.",
    _BALANCING,
)
LOCALITY_BY_MESH = DecisionRule(
    "locality-by-mesh",
    "The mesh's localityLbSetting decides which localities are preferred, where no DestinationRule has one.",
    _BALANCING,
)
LOCALITY_FAILOVER = DecisionRule(
    "locality-failover",
    "With outlierDetection, endpoints in the caller's own subzone are preferred, then those in its zone, then those in "
    "its region, then all others, unless a localityLbSetting sets another order.",
    _BALANCING,
)
ENDPOINTS_BY_EDS = DecisionRule(
    "endpoints-sent",
    "The control plane sends the endpoints (EDS), and sends them again whenever they change.",
    _REQUEST,
)
ENDPOINTS_BY_DNS = DecisionRule(
    "endpoints-by-dns", "The proxy itself resolves the host names of the endpoints.", _RESOURCES
)
ENDPOINT_BY_CALLED_NAME = DecisionRule(
    "endpoint-by-called-name", "The proxy itself resolves the host that the request or its SNI names.", _RESOURCES
)
ENDPOINTS_AS_CALLED = DecisionRule(
    "as-called", "The call goes to exactly the address that the caller used (original destination).", _RESOURCES
)
AUTO_MTLS = DecisionRule(
    "auto-mtls",
    "By default, each endpoint that has a proxy is called with the mesh's mutual TLS, the others in plaintext.",
    _TLS,
)
NO_AUTO_MTLS = DecisionRule(
    "no-auto-mtls",
    "The mesh has enableAutoMtls: false, so calls are plaintext unless a DestinationRule sets tls.",
    _TLS,
)
NO_TLS_OUTSIDE = DecisionRule(
    "no-tls-outside",
    "A host outside the mesh is called as the application calls it, unless a DestinationRule sets tls.",
    _TLS,
)
TLS_BY_RULE = DecisionRule("tls-by-rule", "A DestinationRule's tls overrides the mesh's automatic mutual TLS.", _TLS)
CLOSED_RULE = DecisionRule(
    "refused-rule-closed",
    "The tls of the DestinationRule is invalid, so calls to its host fail until the rule is corrected.",
    _TLS,
)
HTTP2_BETWEEN_PROXIES = DecisionRule(
    "http2-between-proxies",
    "HTTP requests between two proxies of the mesh use HTTP/2, unless a DestinationRule sets DO_NOT_UPGRADE.",
    _REQUEST,
)
HTTP_AS_DECLARED = DecisionRule("http-as-declared", "The HTTP version is the one that the port declares.", _REQUEST)
HTTP_AS_CALLED = DecisionRule("http-as-called", "The HTTP version is the one that the caller uses.", _REQUEST)
UNKNOWN_HOSTS = DecisionRule(
    "unknown-hosts", "Calls to hosts that the mesh does not know use this cluster, if they are allowed.", _RESOURCES
)
BLACK_HOLE = DecisionRule(
    "black-hole", "Traffic that must not be forwarded is sent to this cluster, which has no endpoints.", _REQUEST
)
KEY_SERVER = DecisionRule(
    "key-server", "The proxy itself fetches an issuer's keys (JWKS), through a cluster for the key server.", _TOKENS
)

# Endpoints

READY_ENDPOINTS = DecisionRule(
    "ready-endpoints", "The endpoints are the ready pods that the service's selector selects.", _RESOURCES
)
NOT_READY_ENDPOINTS = DecisionRule(
    "not-ready-endpoints",
    "The service has publishNotReadyAddresses: pods that are not ready are endpoints too.",
    _RESOURCES,
)
ENDPOINTS_BY_SLICE = DecisionRule(
    "endpoints-by-slice", "The EndpointSlices of the service list its endpoints.", _KUBERNETES
)
WRITTEN_ENDPOINTS = DecisionRule(
    "written-endpoints", "The endpoints are those that the ServiceEntry lists.", _RESOURCES
)
SUBSET_BY_LABELS = DecisionRule(
    "subset-by-labels",
    "The endpoints of a subset are the endpoints of the service that have the subset's labels.",
    _RESOURCES,
)
ENDPOINT_TLS = DecisionRule(
    "endpoint-tls",
    "The endpoint has a proxy that accepts the mesh's mutual TLS at this port, so callers use mutual TLS.",
    _TLS,
)
ENDPOINT_PLAIN = DecisionRule(
    "endpoint-plaintext",
    "The endpoint has no proxy at this port, or its proxy accepts no TLS at this port, so callers use plaintext.",
    _TLS,
)

# Inbound: mutual TLS, policies, logs

PERMISSIVE = DecisionRule(
    "permissive", "The mesh's mutual TLS and plaintext are both accepted (PERMISSIVE), which is the default.", _TLS
)
PEER_LEVELS = DecisionRule(
    "peer-authentication-levels",
    "The narrowest PeerAuthentication applies: first that of the port, then of the workload, of the namespace, of the "
    "mesh; of several at one level, the oldest.",
    _TLS,
)
PROTOCOL_DECLARED = DecisionRule(
    "protocol-declared", "The port's protocol is declared, so proxies do not detect it from the first bytes.", _REQUEST
)
CALLERS_TOLD_APART = DecisionRule(
    "callers-told-apart",
    "Services declare different protocols for the port. The caller's proxy signals the protocol of the called Service "
    "by ALPN. For callers without ALPN, the protocol of the oldest Service applies; but if that protocol is HTTP and "
    "another Service declares TCP, the first bytes of the connection decide.",
    _REQUEST,
)
PROTOCOL_DETECTED = DecisionRule(
    "protocol-detected", "The port's protocol is not declared: the first bytes decide between HTTP and TCP.", _REQUEST
)
DETECTION_TIMEOUT = DecisionRule(
    "detection-timeout",
    "Protocol detection waits at most 1 s for the first bytes, unless the mesh sets protocolDetectionTimeout.",
    _REQUEST,
)
DETECTION_TIMEOUT_OF_MESH = DecisionRule(
    "detection-timeout-of-mesh",
    "The mesh's protocolDetectionTimeout limits how long protocol detection waits for the first bytes.",
    _REQUEST,
)
DENY = DecisionRule(
    "deny-before-allow",
    "Policies are evaluated in the order CUSTOM, AUDIT, DENY, ALLOW; a request that one DENY policy matches is denied.",
    _POLICIES,
)
ALLOW = DecisionRule(
    "allow-denies-the-rest",
    "Where an ALLOW policy selects the workload, a request that no ALLOW rule matches is denied.",
    _POLICIES,
)
CUSTOM = DecisionRule(
    "custom-first",
    "A request that a CUSTOM policy matches is sent to its authorizer, before any other policy is evaluated.",
    _POLICIES,
)
AUDIT = DecisionRule(
    "audit-notes",
    "A request that an AUDIT policy matches is marked in the access log; the policy neither allows nor denies it.",
    _POLICIES,
)
DRY_RUN = DecisionRule(
    "dry-run-notes", "A dry-run policy is not enforced: its result is only written to the access log.", _POLICIES
)
NO_AUTHORIZER = DecisionRule(
    "no-authorizer",
    "The authorizer of the CUSTOM policy is not available, so every request that the policy matches is denied.",
    _POLICIES,
)
REFUSED_POLICY = DecisionRule(
    "refused-policy-denies",
    "The policy cannot be enforced as it is written, so it denies every request until it is corrected.",
    _POLICIES,
)
DISGUISES = DecisionRule(
    "disguises-denied",
    "Where a policy matches on paths or headers, requests are denied whose path or header is spelled in a way that "
    "only serves to bypass the policy.",
    _POLICIES,
)
MESH_POLICIES_FIRST = DecisionRule(
    "policies-add-up",
    "Policies of the root namespace, the namespace and the workload all apply; none replaces another.",
    _POLICIES,
)
TOKEN_OPTIONAL = DecisionRule(
    "token-optional",
    "A request without a token passes and has no principal; a request with an invalid token is rejected.",
    _TOKENS,
)
REFUSED_AUTHENTICATION = DecisionRule(
    "refused-authentication-denies",
    "The RequestAuthentication is invalid, so it denies every request until it is corrected.",
    _TOKENS,
)
NO_ACCESS_LOG = DecisionRule(
    "no-access-log", "Requests are not logged, unless the mesh or a Telemetry enables access logging.", _LOGS
)
ACCESS_LOG_OF_MESH = DecisionRule(
    "access-log-of-mesh", "The mesh's accessLogFile or default provider decides where requests are logged.", _LOGS
)
TELEMETRY_LEVELS = DecisionRule(
    "telemetry-levels",
    "The narrowest Telemetry applies: first that of the workload, then of the namespace, of the mesh; of several at "
    "one level, the oldest.",
    _LOGS,
)

# Certificates

WORKLOAD_CERTIFICATE = DecisionRule(
    "workload-certificate",
    "Each pod has a certificate for its service account; the agent of the pod's node requests and renews the "
    "certificate.",
    _IDENTITY,
)
MESH_ROOTS = DecisionRule(
    "mesh-roots",
    "Proxies trust the root certificates of their mesh; the agent of the proxy's node provides these certificates.",
    _IDENTITY,
)
FILES_OF_RULE = DecisionRule(
    "files-of-rule",
    "TLS origination uses the files that the DestinationRule names; without caCertificates, it uses the system's "
    "roots.",
    _TLS,
)

# Rejected config

LAST_ACCEPTED = DecisionRule(
    "last-accepted",
    "Envoy rejected the newer version of the resource, so the last accepted version stays in use.",
    _CHANGE,
)

RULES: Mapping[str, DecisionRule] = {
    value.name: value for value in tuple(globals().values()) if isinstance(value, DecisionRule)
}
