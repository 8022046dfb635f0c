"""The table of all checks: code, severity, title and explanation. A finding names the code of its check; the reference
page, `weft analyze --list` and `weft analyze --explain` are generated from this table.

Rule: the meaning of a code never changes. A code that is no longer used stays in `RETIRED`, so that it is not assigned
again. The first two digits are the area; each area has unused numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from weft.base.problem import Severity

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


class Check(msgspec.Struct, frozen=True):
    code: str
    severity: Severity
    title: str  # what is wrong, in a few words
    more: str  # the effect, and what to do
    istio: tuple[str, ...] = ()  # the codes of `istioctl analyze` for the same problem
    live: bool = False  # needs a running cluster


AREAS: Mapping[str, str] = {
    "00": "Parsing",
    "01": "Routes: VirtualService",
    "02": "Traffic policy: DestinationRule",
    "03": "Services: Service, ServiceEntry, WorkloadEntry",
    "04": "Scope: Sidecar, exportTo",
    "05": "Authentication and authorization: PeerAuthentication, AuthorizationPolicy, RequestAuthentication",
    "06": "Telemetry",
    "07": "The edge: Gateway",
    "08": "Namespaces, pods and injection",
    "09": "The Gateway API: Gateway, HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, BackendTLSPolicy",
}

RETIRED: frozenset[str] = frozenset({"WFT0103"})

_CHECKS: tuple[Check, ...] = (
    # Parsing
    Check("WFT0001", ERROR, "An object or a file is rejected",
          "It cannot be parsed, or a value in it is invalid. The last valid version stays in effect; a policy that "
          "was never valid denies all callers.", ("IST0106", "IST0122")),
    Check("WFT0002", WARNING, "A field is ignored, deprecated, or means something else than it seems",
          "The object is in effect without it.", ("IST0133", "IST0002")),
    Check("WFT0003", WARNING, "A kind that changes how a mesh behaves, and that weft ignores",
          "An EnvoyFilter, a WasmPlugin or a ProxyConfig has no effect. Use Istio's typed resources instead, or keep "
          "the control plane that supports it."),
    # Routes
    Check("WFT0101", WARNING, "A VirtualService is for a host that does not exist",
          "No Service or ServiceEntry has the host: its http routes apply only to requests of callers that resolve "
          "the name anyway, and its tls and tcp routes are never used. "
          "Often a misspelled name, or a name with a dot that is not fully qualified.", ("IST0101",)),
    Check("WFT0102", WARNING, "A VirtualService names a Gateway that does not exist",
          "No gateway serves its routes, and a match on that Gateway never applies. `mesh` stands for all sidecars.",
          ("IST0101",)),
    Check("WFT0104", WARNING, "A route leads to a host that does not exist",
          "Requests sent there fail with 503, connections are closed.", ("IST0101",)),
    Check("WFT0105", WARNING, "A route leads to a host that is not exported to its callers",
          "The `exportTo` of the host does not include their namespace: requests sent there fail with 503. A host that "
          "only a Sidecar hides can still be reached through a route of a visible host."),
    Check("WFT0106", WARNING, "A route leads to a port that the destination does not have",
          "Requests sent there fail with 503."),
    Check("WFT0107", WARNING, "A route leads to a subset that no DestinationRule defines",
          "Requests sent there fail with 503. Define it in the `subsets` of a DestinationRule for that host.",
          ("IST0101",)),
    Check("WFT0108", WARNING, "Two VirtualServices have http routes for one host",
          "Sidecars use only the routes of the older one. Put the routes of one host into one VirtualService, or "
          "delegate.", ("IST0109",)),
    Check("WFT0109", WARNING, "A delegated route is left out",
          "The delegate does not exist, has hosts of its own, is not exported to the root's namespace or delegates "
          "further, or its match is not within that of the root's route."),
    Check("WFT0110", WARNING, "A header's value names a command operator that Envoy does not know",
          "It is sent literally. Write a percent sign as `%%`."),
    Check("WFT0111", WARNING, "A route is never used",
          "A route above it matches every request that it matches. Put the narrower one first.", ("IST0130",)),
    Check("WFT0112", WARNING, "A match is covered by a route above it",
          "This match of the route never applies.", ("IST0131",)),
    Check("WFT0113", INFO, "The weights of a route do not add up to 100",
          "They are shares of their sum: 90 and 5 are 94.7 % and 5.3 %."),
    Check("WFT0114", WARNING, "A route names no port, and the destination does not have the one that was called",
          "It has several others, and the route does not select one: requests fail with 503, and mirrored copies are "
          "not sent.", ("IST0112",)),
    Check("WFT0115", WARNING, "One try may last as long as the whole request",
          "`perTryTimeout` is not below `timeout`: the request times out before it is retried."),
    Check("WFT0116", INFO, "A fault aborts every request",
          "`fault.abort` at 100 % on a route without a match: no request reaches the service. Right for a "
          "test, and easily left behind."),
    Check("WFT0117", WARNING, "Requests are mirrored to their own destination",
          "The same host and subset gets each request twice. Mirror to another subset or host."),
    Check("WFT0118", WARNING, "A match is for a port that the host does not have",
          "The match never applies."),
    Check("WFT0119", WARNING, "A match is for callers that do not exist",
          "No workload has the `sourceLabels`, or no workload runs in the `sourceNamespace`: the match never applies."),
    Check("WFT0120", WARNING, "Routes of a kind that the host's ports do not carry",
          "`http` routes apply to HTTP ports only, `tls` to TLS and HTTPS, `tcp` to all others: here they are never "
          "used, or a match is for a port that carries another protocol. Often the name of the Service's port lacks "
          "its protocol. At a gateway, a server that passes TLS through uses `tls` routes only, one that terminates "
          "HTTPS `http`, one that terminates TLS or carries TCP `tcp`.", ("IST0118",)),
    Check("WFT0121", WARNING, "A VirtualService without hosts, and no other delegates to it",
          "Without hosts it is a delegate, and no route of another VirtualService delegates to it: it is never used."),
    Check("WFT0122", WARNING, "A Gateway does not serve a VirtualService's host",
          "The Gateway serves other hosts, or accepts routes for this one only from another namespace: these routes "
          "are never used there.", ("IST0132",)),
    Check("WFT0123", WARNING, "A redirect leads back to the same URL",
          "It changes neither path, host, port nor scheme of what it matches: clients run into a redirect loop."),
    Check("WFT0124", WARNING, "A route matches a method in lower case",
          "Methods are case-sensitive, and every client sends GET, POST and the like in upper case: the route is never "
          "used. Write the method in upper case."),
    Check("WFT0125", INFO, "A fault applies to every request of a route",
          "Each of them is delayed or aborted, whatever the caller. If the test is over, remove the `fault`; if it is "
          "not, match a header that only the test sends."),
    Check("WFT0126", INFO, "A POST may be processed twice",
          "`retryOn` repeats a request after 5xx, gateway-error or reset, when the server may already have processed "
          "it, and the route is not limited to idempotent methods. Match those in a route of their own, or retry only "
          "requests that never reached the server."),
    # Traffic policy
    Check("WFT0201", WARNING, "A DestinationRule is for a host that does not exist",
          "The rule has no effect.", ("IST0101",)),
    Check("WFT0202", WARNING, "A subset is empty",
          "No workload behind the host has its labels: calls to it fail."),
    Check("WFT0203", WARNING, "A DestinationRule is for callers that do not exist",
          "No workload of its namespace has the labels of `workloadSelector`.", ("IST0127",)),
    Check("WFT0204", WARNING, "Two DestinationRules of one namespace contradict each other about one host",
          "Rules for one host are merged: the subsets of all, and the traffic policy of the oldest that has one. If "
          "two subsets have the same name, the older rule's is used. Merge both into one rule."),
    Check("WFT0205", WARNING, "The server's certificate is not verified",
          "With `insecureSkipVerify` proxies accept any certificate.", ("IST0128", "IST0129")),
    Check("WFT0206", WARNING, "The name in the server's certificate is not verified",
          "Proxies accept any certificate that the CA has signed. Set `sni` or `subjectAltNames`."),
    Check("WFT0207", WARNING, "Calls in plaintext to workloads that accept only mutual TLS",
          "`tls.mode: DISABLE` against a STRICT PeerAuthentication: the calls fail.", ("IST0113",)),
    Check("WFT0208", WARNING, "TLS without the mesh's certificate to a workload of the mesh",
          "`tls.mode: SIMPLE` towards a sidecar: the calls fail. Leave `tls` out.", ("IST0113",)),
    Check("WFT0209", WARNING, "Mutual TLS to a workload without a proxy",
          "`tls.mode: ISTIO_MUTUAL`, and the workload has no proxy to terminate it: the calls fail. A gateway accepts "
          "it where the mode of its own server is ISTIO_MUTUAL."),
    Check("WFT0210", WARNING, "Mutual TLS to workloads that have it disabled",
          "`tls.mode: ISTIO_MUTUAL` against a PeerAuthentication of mode DISABLE: the calls fail.", ("IST0113",)),
    Check("WFT0211", WARNING, "Only some workloads behind a headless service accept mutual TLS",
          "Callers call it by address, and an address does not show whether the workload accepts mutual TLS: all of "
          "them are called in plaintext."),
    Check("WFT0212", WARNING, "A rule for a port that the host does not have",
          "The entry of `portLevelSettings` has no effect."),
    Check("WFT0213", WARNING, "A consistent hash over something that no connection there has",
          "Only HTTP has headers, cookies and query parameters, and no port that this applies to carries HTTP: "
          "connections are not balanced by it."),
    Check("WFT0214", WARNING, "A certificate file of a DestinationRule cannot be used",
          "It does not exist, or a proxy cannot read it: calls fail."),
    Check("WFT0215", WARNING, "Locality failover without outlier detection",
          "`failover` and `failoverPriority` need `outlierDetection`, which detects unhealthy endpoints: without it "
          "all endpoints are called alike."),
    Check("WFT0216", WARNING, "`distribute` sends calls to localities without endpoints",
          "`distribute` sends the calls from a locality only to localities that no endpoint is in: they fail."),
    Check("WFT0217", WARNING, "A tunnel that requests or connections do not go through",
          "`tunnel` is for connections: of tcp and tls routes, and of ports that carry no HTTP. Requests of an http "
          "route are sent to the host itself, as if it were their destination."),
    Check("WFT0218", WARNING, "The destinations of one route have different tunnels",
          "A proxy opens one tunnel for all connections of a route: that of the first destination."),
    Check("WFT0219", WARNING, "The Secret of a DestinationRule does not exist",
          "`credentialName` names a Secret in the namespace of the callers, which are gateways, or the workloads "
          "that `workloadSelector` selects. Where it is missing, or lacks what the mode needs, their calls fail with "
          "503.", ("IST0101",)),
    Check("WFT0220", WARNING, "A route to a subset of a host that is called by address",
          "Callers of a headless service, and of a host with `resolution: NONE`, choose the address themselves: the "
          "sidecar calls it whether it is in the subset or not. Routes of another host do choose among the pods of a "
          "headless service."),
    Check("WFT0221", WARNING, "Load balancing for a host that is called by address",
          "For a headless service, and a host with `resolution: NONE`, sidecars call the address that the "
          "application chose: `loadBalancer` has no effect, nor have `warmup` and a hash."),
    Check("WFT0222", WARNING, "HTTP settings for ports that carry no HTTP",
          "`connectionPool.http` configures how requests are sent, and no port that it applies to is HTTP: its "
          "`idleTimeout`, "
          "`maxRequestsPerConnection`, `maxConcurrentStreams`, `h2UpgradePolicy` and `useClientProtocol` have no "
          "effect. The settings for connections are in `connectionPool.tcp`; if a port does carry HTTP, begin its "
          "name with http."),
    Check("WFT0223", WARNING, "`maxRetries` beside a retry budget",
          "With a `retryBudget`, which limits retries to a share of the active requests, `maxRetries` has no "
          "effect. Keep one of the two."),
    Check("WFT0224", WARNING, "TLS inside TLS",
          "A rule, or a BackendTLSPolicy, makes proxies originate TLS to a port to which the callers' own TLS is "
          "passed through: by a `tls` route, a TLSRoute of a listener in mode Passthrough, or because the port is "
          "declared as TLS or HTTPS. The server finds a second handshake inside the connection, and the callers' "
          "handshakes fail. Terminate the callers' TLS at the gateway, or originate none."),
    # Services
    Check("WFT0301", WARNING, "A service selects no workload",
          "No workload of its namespace has its labels: calls to it fail.", ("IST0127",)),
    Check("WFT0302", WARNING, "The `targetPort` of a service is a port name that no workload has",
          "Calls to that port fail."),
    Check("WFT0303", WARNING, "The `targetPort` of a service is a port that no workload declares",
          "The Workloads behind it list their ports, and this is none of them."),
    Check("WFT0304", WARNING, "Two Services have one address",
          "Proxies cannot tell which of them is called."),
    Check("WFT0305", WARNING, "A service's port is reserved for the proxy",
          "It cannot be reached through a sidecar."),
    Check("WFT0306", WARNING, "A port that takes every connection to its number",
          "It is not HTTP or TLS and the host has no address, so only the port number distinguishes its connections "
          "from others. List `addresses`.", ("IST0134",)),
    Check("WFT0307", INFO, "A port does not declare its protocol",
          "Proxies detect it from the first bytes of each connection, which costs time, and a server that sends first "
          "is delayed. Begin its name with the protocol (`http-web`), or set `appProtocol`.", ("IST0118",)),
    Check("WFT0308", WARNING, "One port of a workload is HTTP to one service and not to another",
          "A caller's proxy sends which service was called, and both work. But calls through the service that is not "
          "HTTP have no routes, policies do not see their path or method, and HTTP can be disguised as raw TCP there. "
          "For callers without a proxy it is unknown which service was called.",
          ("IST0116",)),
    Check("WFT0309", WARNING, "A port is declared as HTTP, and its number is a database's",
          "3306, 5432, 6379, 27017 and the like usually carry another protocol; parsed as HTTP, it is "
          "rejected. Begin the name with tcp, mysql, redis or mongo."),
    Check("WFT0310", WARNING, "ExternalName services form a loop",
          "Each is only an alias of the next: the name never resolves."),
    Check("WFT0311", WARNING, "A service is exposed outside the mesh, and its workloads accept only mutual TLS",
          "Clients outside the mesh that call a NodePort or a load balancer have no certificate of the mesh and are "
          "rejected."),
    Check("WFT0312", WARNING, "A host is defined twice",
          "A ServiceEntry for a host that a Service or another ServiceEntry of its namespace has: the first one "
          "decides, and the ports and endpoints of this one are not used."),
    Check("WFT0313", WARNING, "Two ServiceEntries have one address and port",
          "Connections that are not HTTP or TLS cannot be told apart: one of the two gets all."),
    Check("WFT0314", WARNING, "A gRPC client without a proxy cannot call a service",
          "It sends plaintext, and the service accepts only mutual TLS."),
    Check("WFT0315", WARNING, "A ServiceEntry with `resolution: STATIC` has no endpoints",
          "With `resolution: STATIC`, `endpoints` or a `workloadSelector` list the endpoints: without them, calls "
          "fail."),
    Check("WFT0316", INFO, "A WorkloadEntry that no service selects",
          "No calls are sent to it."),
    Check("WFT0317", WARNING, "No pod behind a service is ready",
          "Pods exist, but none passes its readiness probe: calls fail with 503.", live=True),
    Check("WFT0318", WARNING, "Two ports of one service lead to one port, as different protocols",
          "A caller's proxy sends which port was called, and both work. But calls through the port that is not HTTP "
          "have no routes, and policies do not see their path or method."),
    Check("WFT0319", INFO, "A port is UDP, which is not intercepted",
          "Only TCP is redirected to the proxies. UDP is sent as without a mesh: no routes, no policies, no TLS."),
    Check("WFT0320", WARNING, "A WorkloadEntry has an address that a service which selects it cannot call",
          "A Service, or a ServiceEntry with `resolution: STATIC`, does not resolve names, and one that does cannot "
          "call a Unix socket. The service's other endpoints are called."),
    Check("WFT0321", WARNING, "One port of a workload is HTTP/1.1 in one place and HTTP/2 in another",
          "Between proxies the two cannot be told apart: the workload gets the version that the oldest Service "
          "declares, or the first port of one. gRPC fails where that is HTTP/1.1, and an application that supports "
          "only HTTP/1.1 fails where it is HTTP/2. For an application that supports both, set `useClientProtocol` in "
          "a DestinationRule: it then gets the version of each caller."),
    # Scope
    Check("WFT0401", WARNING, "A Sidecar imports a host that does not exist",
          "The entry of `egress.hosts` imports nothing: the proxy does not know the host that was meant."),
    Check("WFT0402", WARNING, "A Sidecar imports a namespace that does not exist",
          "The entry of `egress.hosts` imports nothing."),
    Check("WFT0403", WARNING, "A Sidecar selects no workload",
          "No workload of its namespace has the labels of `workloadSelector`.", ("IST0127",)),
    Check("WFT0404", WARNING, "Two Sidecars are for a whole namespace",
          "The older one decides, the other has no effect.", ("IST0111",)),
    Check("WFT0405", WARNING, "Two Sidecars select one workload",
          "The older one decides there, and nothing of the other is used.", ("IST0110",)),
    Check("WFT0406", WARNING, "`exportTo` names a namespace that does not exist",
          "The entry exports the object to no namespace. Often a misspelled name."),
    Check("WFT0407", WARNING, "The `egressProxy` of a Sidecar does not exist",
          "No service has its host, or not that port: calls to hosts outside the mesh fail."),
    Check("WFT0408", WARNING, "A Sidecar imports a port that none of its hosts has",
          "The `egress` listener with that port imports nothing: the proxy does not know the hosts that were meant."),
    # Authentication and authorization
    Check("WFT0501", WARNING, "Two PeerAuthentications are for the same workloads",
          "The older one decides, the other has no effect."),
    Check("WFT0502", WARNING, "A PeerAuthentication with a selector in the root namespace",
          "There a PeerAuthentication applies to the whole mesh; with a selector it has no effect."),
    Check("WFT0503", WARNING, "A PeerAuthentication selects no workload",
          "No workload of its namespace has its labels, or no workload runs there.", ("IST0127",)),
    Check("WFT0504", WARNING, "STRICT mutual TLS for workloads without a proxy",
          "These workloads have no proxy that could reject plaintext."),
    Check("WFT0505", WARNING, "`portLevelMtls` names a service's port, not the workload's",
          "The mode has no effect: write the number at which the workload itself listens."),
    Check("WFT0506", WARNING, "`portLevelMtls` names a port that no workload declares",
          "The mode has no effect."),
    Check("WFT0511", WARNING, "An AuthorizationPolicy selects no workload",
          "No workload has its labels, or no workload runs in its namespace.", ("IST0127",)),
    Check("WFT0512", WARNING, "A CUSTOM policy names an authorizer that does not exist",
          "Requests that the policy matches are denied. Define authorizers in `extensionProviders` of the MeshConfig.",
          ("IST0101",)),
    Check("WFT0513", WARNING, "An authorizer's service does not exist",
          "Requests that the policy matches are denied.", ("IST0101",)),
    Check("WFT0514", WARNING, "A policy names a service's port, not the workload's",
          "No call arrives at that number: write the one at which the workload itself listens."),
    Check("WFT0515", WARNING, "An ALLOW rule matches HTTP on a port that carries something else",
          "It allows no connection there: only HTTP has hosts, paths, methods, headers and tokens."),
    Check("WFT0516", WARNING, "A DENY, AUDIT or CUSTOM rule matches more on a port that does not carry HTTP",
          "Conditions about HTTP are left out there, so the rule matches every connection that the rest of it matches. "
          "Add `ports` to its operations. At a gateway these are the servers of TCP, and of TLS passthrough."),
    Check("WFT0517", WARNING, "An authorizer for HTTP is to decide about other connections",
          "It cannot be called for them, so every connection that the rule matches is denied."),
    Check("WFT0518", WARNING, "A policy names a port that no workload declares",
          "No call arrives at that port: the rule matches nothing."),
    Check("WFT0519", WARNING, "A rule matches callers' identities where mutual TLS is disabled",
          "Without mutual TLS no caller has an identity: the rule matches nothing."),
    Check("WFT0521", WARNING, "A policy names a trust domain that is not this mesh's",
          "No certificate here is of that domain: the entry matches no caller. List former domains in "
          "`trustDomainAliases`."),
    Check("WFT0522", WARNING, "A policy names a principal that no workload has",
          "No workload runs with that identity: the entry matches no caller."),
    Check("WFT0523", WARNING, "A policy names a namespace in which no workload runs",
          "The entry matches no caller."),
    Check("WFT0524", WARNING, "A policy names a service account that no workload runs as",
          "The entry matches no caller."),
    Check("WFT0531", WARNING, "A policy selects workloads without a proxy",
          "No proxy enforces it there."),
    Check("WFT0532", WARNING, "A policy selects ports that are excluded from the proxy",
          "Annotations exclude them from interception: no proxy enforces the policy there."),
    Check("WFT0533", WARNING, "A rule about callers' identities, and plaintext is accepted",
          "A caller without a certificate has no identity: no DENY rule that names callers matches it, and an ALLOW "
          "rule for all but some callers lets it in. Make the PeerAuthentication STRICT."),
    Check("WFT0541", WARNING, "A RequestAuthentication selects no workload",
          "No workload has its labels, or no workload runs in its namespace.", ("IST0127",)),
    Check("WFT0542", WARNING, "Keys that a pod of a local mesh cannot fetch",
          "Its pods cannot call hosts outside the mesh: every token of the issuer gets 401. Write the keys themselves: "
          "`jwks`."),
    Check("WFT0543", WARNING, "Tokens are checked on a port whose protocol is not declared",
          "Or whose Services declare different protocols. HTTP can be disguised as raw TCP there, and then its token "
          "is not checked. Begin the port's name with http.", ("IST0119",)),
    Check("WFT0544", WARNING, "A policy about tokens where no RequestAuthentication checks them",
          "Without a RequestAuthentication for the workload no request has a token: an ALLOW rule matches none."),
    Check("WFT0545", WARNING, "A policy matches tokens of an issuer that no RequestAuthentication trusts",
          "No RequestAuthentication for these workloads has the issuer: the entry of `requestPrincipals` matches "
          "no request."),
    # Telemetry
    Check("WFT0601", WARNING, "A Telemetry names a provider that does not exist",
          "Nothing is logged there.", ("IST0157",)),
    Check("WFT0602", WARNING, "A Telemetry names a provider that weft does not support",
          "Nothing is logged there. Use an envoyFileAccessLog, and collect the logs from there."),
    Check("WFT0603", WARNING, "A Telemetry selects no workload",
          "No workload of its namespace has its labels.", ("IST0127",)),
    Check("WFT0604", WARNING, "Two Telemetries are for the same workloads",
          "The older one decides, the other has no effect.", ("IST0159", "IST0160")),
    # The edge
    Check("WFT0701", WARNING, "A Gateway selects no workload",
          "No workload has its labels: no gateway serves it.", ("IST0101",)),
    Check("WFT0702", WARNING, "Two Gateways have the same host and port for the same workloads",
          "For a TLS server name, and for a TCP port, the older Gateway is served. Routes of plain HTTP are merged.",
          ("IST0145",)),
    Check("WFT0703", WARNING, "Servers of one port have different protocols",
          "A proxy cannot tell HTTP, TLS and TCP apart on one port of the same workloads: the oldest Gateway decides "
          "the protocol, or without ages the first by name. The other server is left out.",
          ("IST0145",)),
    Check("WFT0704", WARNING, "A server's certificate is missing",
          "The Secret does not exist in the namespace of the gateway's pods, or lacks what the server needs: "
          "connections to its hosts are closed until the Secret is complete. Other hosts are served.", ("IST0101",)),
    Check("WFT0705", WARNING, "A server's certificate has expired",
          "Clients reject it."),
    Check("WFT0706", WARNING, "A server's certificate is for other hosts",
          "Clients that call the host reject it. A wildcard in a certificate stands for one label."),
    Check("WFT0707", INFO, "A Gateway serves a host without routes",
          "Every request for it gets 404, every connection is closed. Bind a VirtualService to the Gateway."),
    Check("WFT0708", WARNING, "A Gateway selects workloads that are no gateways",
          "A sidecar serves no Gateway. On one machine a Workload has `gateway`, on a cluster a pod has the injection "
          "template `gateway`."),
    Check("WFT0709", INFO, "A gateway's port is not published",
          "The Workload publishes others of its ports on the machine. This one can only be called from within the "
          "mesh."),
    Check("WFT0710", WARNING, "No Gateway serves a published port",
          "No Gateway that selects the Workload has a server at that port: connections to it are closed at once. "
          "`port` is the gateway's own, and `hostPort` the machine's."),
    # Namespaces, pods and injection
    Check("WFT0801", WARNING, "A namespace has two labels about injection",
          "`istio-injection` overrides `istio.io/rev`, which has no effect. Keep one of them.", ("IST0123",)),
    Check("WFT0802", WARNING, "A namespace's `istio-injection` is neither enabled nor disabled",
          "Its pods get no proxy."),
    Check("WFT0803", WARNING, "A namespace selects a revision that is not installed",
          "Its new pods get no proxy. `weft x revision list` lists the installed ones.", live=True),
    Check("WFT0804", WARNING, "A pod has no proxy, although its namespace enables injection",
          "It was created before the label, or while the webhook was unavailable. Restart its workload.",
          ("IST0103",), live=True),
    Check("WFT0805", WARNING, "A pod's proxy is of another revision than its namespace selects",
          "It stays with that control plane until it is restarted.", live=True),
    Check("WFT0806", WARNING, "Pods have another proxy image than new ones would get",
          "Usual after an upgrade. Restart the workloads.", ("IST0105", "IST0158"), live=True),
    Check("WFT0807", WARNING, "An application runs as user 1337",
          "That user is the proxy's: the application's calls are not intercepted, so they have no mutual TLS, no "
          "policy and no telemetry.", ("IST0144",)),
    Check("WFT0808", WARNING, "A pod on the node's network requests a proxy",
          "With `hostNetwork` it gets none: a redirect would intercept the connections of the whole node."),
    Check("WFT0809", WARNING, "An annotation or label for injection is on the wrong object",
          "It has no effect there: it belongs on the pod, in a workload in `spec.template.metadata`.", ("IST0107",)),
    Check("WFT0810", WARNING, "An annotation that weft does not read",
          "It is misspelled, or an annotation of Istio that has no effect here.", ("IST0108",)),
    Check("WFT0811", WARNING, "An annotation's value cannot be used",
          "The injector rejects the pod.", ("IST0125",)),
    Check("WFT0812", INFO, "`sidecar.istio.io/inject` is an annotation",
          "Deprecated: the API server can select pods by a label, but not by an annotation.", ("IST0135",)),
    Check("WFT0813", WARNING, "A container listens on a port that is reserved for the proxy",
          "15000 to 15090 are the proxy's: the one that starts later cannot listen."),
    Check("WFT0814", WARNING, "`image: auto` in a pod that is not injected",
          "Only the injector replaces `auto` with an image: the pod cannot start.", ("IST0146", "IST0147")),
    Check("WFT0815", WARNING, "The API server cannot reach a webhook",
          "Pods are created without a proxy or not at all, and objects are not validated.", ("IST0139",), live=True),
    Check("WFT0816", INFO, "A namespace has no label about injection",
          "Its pods get no proxy. Label it `istio-injection: enabled`, or `disabled` if that is intended.",
          ("IST0102",)),
    Check("WFT0817", WARNING, "A kind could not be read from the cluster",
          "Your credentials do not allow it, or the API server does not respond: nothing that depends on it was "
          "checked.", ("IST0141",), live=True),
    Check("WFT0818", WARNING, "A Workload's program or working directory cannot be used",
          "It does not exist, or is not executable: its pods restart again and again."),
    # The Gateway API
    Check("WFT0901", WARNING, "A route is not accepted by its parent",
          "The Gateway or Service does not exist, has no such listener or port, or does not allow this route: its "
          "rules are never used there. The reason is the one of the Gateway API, as in the route's status."),
    Check("WFT0902", WARNING, "A route has a backend that cannot be called",
          "The Service or its port does not exist, is in another namespace without a ReferenceGrant, or is not a "
          "Service: the share of requests that its weight gives it gets 500."),
    Check("WFT0903", WARNING, "A listener of a Gateway cannot be served",
          "Its protocol is not supported, another listener has its port or hostname, or its certificate is missing."),
    Check("WFT0904", WARNING, "A BackendTLSPolicy is not in effect",
          "Its Service or port does not exist, an older policy has the same target, or it has no usable CA "
          "certificate: in the last case all calls to the Service fail."),
    Check("WFT0905", WARNING, "A Gateway has no proxy",
          "Its proxies are the gateways of its namespace with the label `gateway.networking.k8s.io/gateway-name` and "
          "its name; there is none."),
    Check("WFT0906", WARNING, "A Gateway's class does not exist",
          "weft serves the class `weft`, and those whose GatewayClass names its controller. This one has another "
          "`gatewayClassName`, and no GatewayClass with that name exists: no controller serves it."),
)  # fmt: skip

CHECKS: Mapping[str, Check] = {check.code: check for check in _CHECKS}


def in_area(area: str, checks: Iterable[Check] = _CHECKS) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.code[3:5] == area)
