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
    "09": "The Gateway API: Gateway, ListenerSet, HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, BackendTLSPolicy",
}

RETIRED: frozenset[str] = frozenset({"WFT0103"})

_CHECKS: tuple[Check, ...] = (
    # Parsing
    Check("WFT0001", ERROR, "An object or a file is rejected",
          "The object or file cannot be parsed, or one of its values is invalid. The object's last valid version "
          "stays in effect. An object that was never valid has no effect, with four exceptions: an "
          "AuthorizationPolicy or RequestAuthentication denies all requests to the workloads that it selects, a "
          "PeerAuthentication is STRICT, and calls for which a DestinationRule configures TLS fail.",
          ("IST0106", "IST0122")),
    Check("WFT0002", WARNING, "A field is ignored, deprecated, or means something else than it seems",
          "The message of the finding names the field and what weft does instead. All other fields of the object are "
          "in effect.",
          ("IST0133", "IST0002")),
    Check("WFT0003", WARNING, "weft ignores a kind that changes how a mesh behaves",
          "An EnvoyFilter, a WasmPlugin or a ProxyConfig has no effect. Use Istio's typed resources instead, or "
          "keep the control plane that supports these kinds.",
          ("IST0151", "IST0152", "IST0153", "IST0154", "IST0155")),
    # Routes
    Check("WFT0101", WARNING, "A VirtualService is for a host that does not exist",
          "No Service or ServiceEntry has the host: the VirtualService's http routes apply only to requests of "
          "callers that resolve the name anyway, and its tls and tcp routes are never used. Often the name is "
          "misspelled, or has a dot but is not fully qualified.", ("IST0101",)),
    Check("WFT0102", WARNING, "A VirtualService names a Gateway that does not exist",
          "No proxy serves the VirtualService's routes for the missing Gateway, and a match on that Gateway never "
          "applies. The name `mesh` is not a Gateway: it stands for all sidecars.",
          ("IST0101",)),
    Check("WFT0104", WARNING, "A route leads to a host that does not exist",
          "Requests to that host fail with 503, and connections to it are closed.", ("IST0101",)),
    Check("WFT0105", WARNING, "A route leads to a host that is not exported to its callers",
          "The `exportTo` of the host does not include the namespace of the callers, so their requests to the host "
          "fail with 503. A host that only a Sidecar hides can still be reached through a route of a visible host."),
    Check("WFT0106", WARNING, "A route leads to a port that the destination does not have",
          "Requests to that port fail with 503."),
    Check("WFT0107", WARNING, "A route leads to a subset that no DestinationRule defines",
          "Requests to that subset fail with 503. Define the subset in the `subsets` of a DestinationRule for the "
          "host.",
          ("IST0101",)),
    Check("WFT0108", WARNING, "Two VirtualServices have http routes for one host",
          "Sidecars use the http routes of only one of the VirtualServices: the one with the narrower `exportTo` or, "
          "if these are equal, the older one. Put all routes of the host into one VirtualService, or let one "
          "VirtualService delegate to the others.",
          ("IST0109",)),
    Check("WFT0109", WARNING, "A delegated route is left out",
          "The route is left out because its delegate does not exist, has hosts of its own, is not exported to the "
          "namespace of the delegating VirtualService, or delegates further; or because the delegate's match is not "
          "within that of the delegating route."),
    Check("WFT0110", WARNING, "A header's value names a command operator that Envoy does not know",
          "The value is sent literally. To send a percent sign, write `%%`."),
    Check("WFT0111", WARNING, "A route is never used",
          "A route above this one matches every request that this one matches. Put the narrower route first.",
          ("IST0130",)),
    Check("WFT0112", WARNING, "A match is covered by a route above it",
          "A route or match above this match already matches every request that this match would, so this match never "
          "applies. Remove it.", ("IST0131",)),
    Check("WFT0113", INFO, "The weights of a route do not add up to 100",
          "Each destination gets the share that its weight has of the sum: 90 and 5 are 94.7 % and 5.3 %."),
    Check("WFT0114", WARNING, "A route names no port, and the destination does not have the one that was called",
          "The destination has several ports, but not the called one, and the route does not select one of them: "
          "requests fail with 503, and mirrored copies are not sent. Name the port in the route's destination.",
          ("IST0112",)),
    Check("WFT0115", WARNING, "One try may last as long as the whole request",
          "`perTryTimeout` is not below `timeout`, so the request times out before a slow try is retried."),
    Check("WFT0116", INFO, "A fault aborts every request",
          "`fault.abort` is 100 % on a route without a match, so no request reaches the service. If the test is over, "
          "remove the `fault`."),
    Check("WFT0117", WARNING, "Requests are mirrored to their own destination",
          "The destination gets each request twice. Mirror to another subset or host."),
    Check("WFT0118", WARNING, "A match is for a port that the host does not have",
          "The match never applies. Correct its `port`."),
    Check("WFT0119", WARNING, "A match is for callers that do not exist",
          "No workload has the `sourceLabels`, or no workload runs in the `sourceNamespace`, so the match never "
          "applies."),
    Check("WFT0120", WARNING, "Routes of a kind that the host's ports do not use",
          "HTTP ports use only `http` routes, TLS and HTTPS ports only `tls` routes, all other ports only `tcp` "
          "routes. The routes of the VirtualService are of another kind, or a match is for a port of another kind, so "
          "they are never used. Often the name of the Service's port does not begin with its protocol. At a gateway, "
          "a server that passes TLS through uses only `tls` routes, a server that terminates HTTPS only `http` "
          "routes, and a server that terminates TLS or carries TCP only `tcp` routes.", ("IST0118",)),
    Check("WFT0121", WARNING, "A VirtualService has no hosts, and no other VirtualService delegates to it",
          "A VirtualService without hosts is a delegate. No route of another VirtualService delegates to this one, so "
          "it is never used. Add `hosts`, or a route with a `delegate` that names this VirtualService."),
    Check("WFT0122", WARNING, "A Gateway does not serve a VirtualService's host",
          "The Gateway serves other hosts, or accepts routes for this host only from another namespace, so the "
          "VirtualService's routes for the host are never used at that Gateway.", ("IST0132",)),
    Check("WFT0123", WARNING, "A redirect leads back to the same URL",
          "The redirect changes neither host, port nor scheme, and its own route matches the new path again, so "
          "clients run into a redirect loop. Put a route for the new path above the redirect."),
    Check("WFT0124", WARNING, "A route matches a method in lower case",
          "Methods are case-sensitive, and clients send GET, POST and the like in upper case, so the route is never "
          "used. Write the method in upper case."),
    Check("WFT0125", INFO, "A fault applies to every request of a route",
          "Every request of the route is delayed or aborted, whatever its caller. If the test is over, remove the "
          "`fault`; if it is not, match a header that only the test sends."),
    Check("WFT0126", INFO, "A POST may be processed twice",
          "`retryOn` repeats a request after 5xx, gateway-error or reset, when the server may already have processed "
          "the request, and the route is not limited to idempotent methods. Retry only idempotent methods, which a "
          "route of their own can match, or only requests that never reached the server."),
    Check("WFT0127", WARNING, "A VirtualService has routes for a host of another namespace",
          "The check finds two cases. Either the host belongs to a Service of another namespace, and the "
          "VirtualService is exported to that namespace, so it changes where the calls of workloads in that namespace "
          "go. Or another namespace already has routes for the host at the same Gateway, and the routes of both "
          "namespaces are merged. If the routes are meant only for callers in the VirtualService's own namespace, set "
          "`exportTo: [\".\"]`; otherwise move the routes to the namespace of the host."),
    # Traffic policy
    Check("WFT0201", WARNING, "A DestinationRule is for a host that does not exist",
          "No Service or ServiceEntry has the host, so the rule has no effect.", ("IST0101", "IST0174")),
    Check("WFT0202", WARNING, "A subset is empty",
          "No workload of the host has the subset's labels, so calls to the subset fail.", ("IST0173",)),
    Check("WFT0203", WARNING, "A DestinationRule is for callers that do not exist",
          "No workload of the rule's namespace has the labels of `workloadSelector`, so the rule has no effect.",
          ("IST0127",)),
    Check("WFT0204", WARNING, "Two DestinationRules of one namespace contradict each other about one host",
          "Rules for one host are merged: all their subsets are used, but only the traffic policy of the oldest rule "
          "that has one, and of two subsets with the same name only that of the older rule. Merge both rules into "
          "one."),
    Check("WFT0205", WARNING, "The server's certificate is not verified",
          "With `insecureSkipVerify`, proxies accept any certificate. Set `caCertificates` instead.",
          ("IST0128", "IST0129")),
    Check("WFT0206", WARNING, "The name in the server's certificate is not verified",
          "Proxies accept any certificate that the CA has signed, for whatever host. Set `sni` or `subjectAltNames`."),
    Check("WFT0207", WARNING, "Calls in plaintext to workloads that accept only mutual TLS",
          "The rule has `tls.mode: DISABLE`, and a PeerAuthentication of the workloads is STRICT, so the calls fail. "
          "Leave `tls` out: proxies use mutual TLS automatically.", ("IST0113",)),
    Check("WFT0208", WARNING, "TLS without the mesh's certificate to a workload of the mesh",
          "The rule has `tls.mode: SIMPLE`, and the sidecar of the workload accepts only mutual TLS with a "
          "certificate of the mesh, or expects plaintext HTTP, so the calls fail. Leave `tls` out: proxies use mutual "
          "TLS automatically.", ("IST0113",)),
    Check("WFT0209", WARNING, "Mutual TLS to a workload without a proxy",
          "The rule has `tls.mode: ISTIO_MUTUAL`, and the workload has no proxy that could terminate the TLS, so the "
          "calls fail. A gateway terminates it only if the `tls.mode` of the gateway's own server is ISTIO_MUTUAL. "
          "Leave `tls` out."),
    Check("WFT0210", WARNING, "Mutual TLS to workloads that have it disabled",
          "The rule has `tls.mode: ISTIO_MUTUAL`, and a PeerAuthentication of the workloads has the mode DISABLE, so "
          "the calls fail. Leave `tls` out, or set the PeerAuthentication to PERMISSIVE.", ("IST0113",)),
    Check("WFT0211", WARNING, "Only some workloads behind a headless service accept mutual TLS",
          "Callers of a headless service call a workload by its address, and an address does not show whether the "
          "workload accepts mutual TLS, so all workloads of the service are called in plaintext. Give all of them a "
          "proxy, or none."),
    Check("WFT0212", WARNING, "A DestinationRule has settings for a port that the host does not have",
          "The entry of `portLevelSettings` has no effect."),
    Check("WFT0213", WARNING, "A consistent hash uses a header, cookie or query parameter where no port carries HTTP",
          "Only HTTP has headers, cookies and query parameters, and no port that the hash applies to carries HTTP, so "
          "the hash has no effect. Use `useSourceIp`."),
    Check("WFT0214", WARNING, "A certificate file of a DestinationRule cannot be used",
          "The file does not exist, or the proxy cannot read it, so calls that use the rule fail."),
    Check("WFT0215", WARNING, "Locality failover without outlier detection",
          "`failover` and `failoverPriority` need `outlierDetection`, which detects unhealthy endpoints. Without it, "
          "there is no failover, and the endpoints of all localities are called alike."),
    Check("WFT0216", WARNING, "`distribute` sends calls to localities without endpoints",
          "`distribute` sends the calls from a locality only to localities that have no endpoint of the host, so "
          "these calls fail."),
    Check("WFT0217", WARNING, "Requests or connections do not use a DestinationRule's tunnel",
          "Only connections use a `tunnel`: those of tcp and tls routes, and those of ports that carry no HTTP. "
          "Requests of an http route do not use it: they are sent to the host of the rule, which is the tunnel's "
          "proxy, as if that host were their destination."),
    Check("WFT0218", WARNING, "The destinations of one route have different tunnels",
          "A proxy opens only one tunnel per route, that of the first destination, and all connections of the route "
          "use it. Configure the same tunnel for all destinations."),
    Check("WFT0219", WARNING, "The Secret of a DestinationRule does not exist",
          "`credentialName` names a Secret in the namespace of the gateways that use the rule. If that Secret does not "
          "exist, or lacks what the TLS mode needs, the gateways' requests fail with 503. A sidecar gets no Secret: "
          "if `workloadSelector` selects sidecars, their requests fail likewise.", ("IST0101",)),
    Check("WFT0220", WARNING, "A route leads to a subset of a host that is called by address",
          "Callers of a headless service, and of a host with `resolution: NONE`, choose the address themselves, and "
          "the sidecar calls that address whether or not it is in the subset. Only routes of another host choose "
          "among the pods of a headless service."),
    Check("WFT0221", WARNING, "Load balancing for a host that is called by address",
          "For a headless service, and for a host with `resolution: NONE`, sidecars call the address that the "
          "application chose, so `loadBalancer` has no effect, including `warmup` and `consistentHash`."),
    Check("WFT0222", WARNING, "HTTP settings for ports that carry no HTTP",
          "`connectionPool.http` configures how requests are sent, and no port that it applies to carries HTTP, so "
          "its `idleTimeout`, `maxRequestsPerConnection`, `maxConcurrentStreams`, `h2UpgradePolicy` and "
          "`useClientProtocol` have no effect. The settings for connections are in `connectionPool.tcp`; if a port "
          "does carry HTTP, begin its name with http."),
    Check("WFT0223", WARNING, "`maxRetries` is set together with a retry budget",
          "A `retryBudget` limits retries to a share of the active requests, and with it, `maxRetries` has no effect. "
          "Keep either `retryBudget` or `maxRetries`."),
    Check("WFT0224", WARNING, "A proxy originates TLS for connections that are already TLS",
          "A DestinationRule or a BackendTLSPolicy makes proxies originate TLS to a port, and the callers' own TLS is "
          "passed through to the same port: by a `tls` route, by a TLSRoute of a listener in mode Passthrough, or "
          "because the port is declared as TLS or HTTPS. The server finds a second handshake inside the connection, "
          "so the callers' handshakes fail. Terminate the callers' TLS at the gateway, or configure no TLS for that "
          "port."),
    Check("WFT0225", INFO, "Outlier detection can eject no endpoint",
          "`maxEjectionPercent` limits the share of a service's endpoints that may be ejected at the same time, "
          "rounded down. The default is 10 %, which is no endpoint if the service has fewer than ten, so a failing "
          "endpoint keeps getting calls. Set `maxEjectionPercent` to at least 100 divided by the number of "
          "endpoints. If calls fail over to another locality, the default is 100 %."),
    # Services
    Check("WFT0301", WARNING, "A service selects no workload",
          "No workload of the service's namespace has the labels of its selector, so calls to the service fail.",
          ("IST0127",)),
    Check("WFT0302", WARNING, "The `targetPort` of a service is a port name that no workload has",
          "Calls to that port of the service fail. Correct `targetPort`, or name the workload's port."),
    Check("WFT0303", WARNING, "The `targetPort` of a service is a port that no workload declares",
          "The Workloads of the service list their ports, and `targetPort` is none of them, so calls to the service "
          "fail if no workload listens on that port. Correct `targetPort`, or add the port to the Workload."),
    Check("WFT0304", WARNING, "Two Services have one address",
          "Proxies cannot tell which of the two Services is called, so calls to one may reach the other. Give one of "
          "the Services another `clusterIP`, or remove it."),
    Check("WFT0305", WARNING, "A service's port is reserved for the proxy",
          "The sidecar itself uses that port number, so it cannot forward calls to the service's port. Use another "
          "service port."),
    Check("WFT0306", WARNING, "A port gets every connection to its number, whatever the host",
          "The port is not HTTP or TLS, and its host has no address, so only the port number distinguishes its "
          "connections from those of other hosts. List the host's `addresses`.", ("IST0134",)),
    Check("WFT0307", INFO, "A port does not declare its protocol",
          "Proxies detect the protocol from the first bytes of each connection. That takes time, and delays "
          "connections on which the server sends first. Begin the port's name with the protocol (`http-web`), or set "
          "`appProtocol`.", ("IST0118",)),
    Check("WFT0308", WARNING, "One port of a workload is HTTP to one service and not to another",
          "A caller's proxy signals which service was called, so calls through both services work. But calls through "
          "the service that is not HTTP have no routes, policies do not see their path or method, and an HTTP request "
          "that is disguised as raw TCP bypasses HTTP policies. For callers without a proxy, it is unknown which "
          "service was called. Declare the same protocol in both services.",
          ("IST0116",)),
    Check("WFT0309", WARNING, "A port is declared as HTTP, and its number is a database's",
          "Ports such as 3306, 5432, 6379 and 27017 usually carry the protocol of a database, and proxies that parse "
          "it as HTTP reject it. Begin the port's name with tcp, mysql, redis or mongo."),
    Check("WFT0310", WARNING, "ExternalName services form a loop",
          "Each service is only an alias of the next one, so none of the names ever resolves. Let one of them name a "
          "host with endpoints."),
    Check("WFT0311", WARNING, "A service is exposed outside the mesh, and its workloads accept only mutual TLS",
          "Clients outside the mesh that call the service's NodePort or load balancer have no certificate of the "
          "mesh, so their calls are rejected. Put a gateway in front of the service, or set the port to PERMISSIVE in "
          "`portLevelMtls`."),
    Check("WFT0312", WARNING, "A host is defined twice",
          "A ServiceEntry has the host of a Service, or of another ServiceEntry of its namespace with which it "
          "cannot be merged: their `resolution`, `workloadSelector` or `exportTo` differ. The other object takes "
          "precedence, so the ports and endpoints of this ServiceEntry are not used. Put the ports and endpoints of "
          "one host into one object."),
    Check("WFT0313", WARNING, "Two ServiceEntries have one address and port",
          "Proxies can distinguish connections to the two ServiceEntries only if the connections carry HTTP or TLS. "
          "One of the ServiceEntries gets all other connections. Give each ServiceEntry its own address."),
    Check("WFT0314", WARNING, "A gRPC client without a proxy cannot call a service",
          "A gRPC client that gets its configuration by xDS, without a proxy, sends plaintext, and the service or its "
          "DestinationRule requires TLS. Call the service through a sidecar, or set its PeerAuthentication to "
          "PERMISSIVE."),
    Check("WFT0315", WARNING, "A ServiceEntry with `resolution: STATIC` has no endpoints",
          "With `resolution: STATIC`, only `endpoints` or a `workloadSelector` can give the host endpoints, and the "
          "ServiceEntry has neither, so calls to the host fail."),
    Check("WFT0316", INFO, "No service selects a WorkloadEntry",
          "No calls are sent to the WorkloadEntry. Select its labels with the `workloadSelector` of a ServiceEntry."),
    Check("WFT0317", WARNING, "No pod behind a service is ready",
          "The service has pods, but none of them passes its readiness probe, so calls to the service fail with 503.",
          live=True),
    Check("WFT0318", WARNING, "Two ports of one service lead to one port of the workload, as different protocols",
          "A caller's proxy signals which port was called, so calls through both ports work. But calls through the "
          "port that is not HTTP have no routes, and policies do not see their path or method. Declare the same "
          "protocol for both ports."),
    Check("WFT0319", INFO, "A port is UDP, which is not intercepted",
          "Only TCP is redirected to the proxies. UDP is sent as without a mesh: it has no routes, no policies and no "
          "TLS."),
    Check("WFT0320", WARNING, "A service selects a WorkloadEntry that it cannot call at its address",
          "A Service, or a ServiceEntry with `resolution: STATIC`, does not resolve names, so it cannot call a "
          "WorkloadEntry whose address is a name. A ServiceEntry that resolves names cannot call a Unix socket. The "
          "other endpoints of the service are called."),
    Check("WFT0321", WARNING, "One port of a workload is declared as HTTP/1.1 and as HTTP/2",
          "Between proxies, the two declarations cannot be distinguished, so the workload gets the version that the "
          "oldest Service declares or, if both declarations are in one Service, the version of its first port. If "
          "that version is HTTP/1.1, gRPC fails; if it is HTTP/2, an application that supports only HTTP/1.1 fails. "
          "If the application supports both versions, set `useClientProtocol` in a DestinationRule: the application "
          "then gets the version that each caller uses."),
    Check("WFT0322", WARNING, "Pods of a mesh on one machine cannot reach a host outside the mesh",
          "The ServiceEntry leads to a host outside the mesh. Pods on one machine reach only their mesh, so calls to "
          "that host fail. `weft up --egress` lets pods reach hosts outside the mesh. On Kubernetes this check does "
          "not apply."),
    # Scope
    Check("WFT0401", WARNING, "A Sidecar imports a host that does not exist",
          "The entry of `egress.hosts` imports nothing, so the proxy does not know the host that was meant."),
    Check("WFT0402", WARNING, "A Sidecar imports a namespace that does not exist",
          "The entry of `egress.hosts` imports nothing, so the proxy does not know the hosts that were meant."),
    Check("WFT0403", WARNING, "A Sidecar selects no workload",
          "No workload of the Sidecar's namespace has the labels of `workloadSelector`, so the Sidecar has no effect.",
          ("IST0127",)),
    Check("WFT0404", WARNING, "Two Sidecars are for a whole namespace",
          "The older Sidecar is used, and the other has no effect.", ("IST0111",)),
    Check("WFT0405", WARNING, "Two Sidecars select one workload",
          "The older Sidecar is used for that workload, and the other Sidecar has no effect on it.", ("IST0110",)),
    Check("WFT0406", WARNING, "`exportTo` names a namespace that does not exist",
          "The entry exports the object to no namespace. Often the name is misspelled."),
    Check("WFT0407", WARNING, "The `egressProxy` of a Sidecar does not exist",
          "No service has the host of the `egressProxy`, or the service does not have its port, so calls to hosts "
          "outside the mesh fail."),
    Check("WFT0408", WARNING, "A Sidecar imports a port that none of its hosts has",
          "The `egress` listener with that port imports nothing, so the proxy does not know the hosts that were "
          "meant."),
    Check("WFT0409", WARNING, "The `tls` of a Sidecar's ingress listener is not used",
          "A sidecar terminates the TLS of callers outside the mesh only on ports whose mutual TLS mode is DISABLE."),
    # Authentication and authorization
    Check("WFT0501", WARNING, "Two PeerAuthentications are for the same workloads",
          "The older PeerAuthentication is used, and the other has no effect."),
    Check("WFT0502", WARNING, "A PeerAuthentication in the root namespace has a selector",
          "In the root namespace, a PeerAuthentication applies to the whole mesh, and one with a selector has no "
          "effect. Move it to the namespace of the workloads."),
    Check("WFT0503", WARNING, "A PeerAuthentication selects no workload",
          "No workload of the PeerAuthentication's namespace has the labels of its selector, or no workload runs in "
          "that namespace, so the PeerAuthentication has no effect.", ("IST0127",)),
    Check("WFT0504", WARNING, "STRICT mutual TLS for workloads without a proxy",
          "The workloads have no proxy that could reject plaintext, so they still accept it."),
    Check("WFT0505", WARNING, "`portLevelMtls` names a service's port, not the workload's",
          "The mode has no effect, because no call arrives at that number. Write the number of the port on which the "
          "workload itself listens."),
    Check("WFT0506", WARNING, "`portLevelMtls` names a port that no workload declares",
          "The mode has no effect, because no workload has that port."),
    Check("WFT0511", WARNING, "An AuthorizationPolicy selects no workload",
          "No workload has the labels of the policy's selector, or no workload runs in the policy's namespace, so the "
          "policy has no effect.", ("IST0127",)),
    Check("WFT0512", WARNING, "A CUSTOM policy names an authorizer that does not exist",
          "Requests that the policy matches are denied. Define authorizers in `extensionProviders` of the MeshConfig.",
          ("IST0101",)),
    Check("WFT0513", WARNING, "An authorizer's service does not exist",
          "The authorizer's service, or its port, cannot be called, so requests that the policy matches are denied.",
          ("IST0101",)),
    Check("WFT0514", WARNING, "A policy names a service's port, not the workload's",
          "No call arrives at that number, so the rule matches nothing. Write the number of the port on which the "
          "workload itself listens."),
    Check("WFT0515", WARNING, "An ALLOW rule matches HTTP on a port that carries something else",
          "Only HTTP has hosts, paths, methods, headers and tokens, so the rule allows no connection to that port. To "
          "allow connections, add a rule without such conditions."),
    Check("WFT0516", WARNING, "A DENY, AUDIT or CUSTOM rule matches more on a port that does not carry HTTP",
          "On such a port, the rule's HTTP conditions (hosts, paths, methods, headers, tokens) are ignored, so the "
          "rule matches every connection that its other conditions match. To limit the rule to HTTP, list the HTTP "
          "ports in `ports` of its operations. At a gateway, the ports without HTTP are those of TCP servers and of "
          "TLS passthrough servers."),
    Check("WFT0517", WARNING, "An authorizer that supports only HTTP is used on a port that does not carry HTTP",
          "The authorizer cannot be called for such connections, so every connection to the port that the rule "
          "matches is denied. To limit the rule to HTTP, list the HTTP ports in `ports` of its operations, or use an "
          "`envoyExtAuthzGrpc` authorizer."),
    Check("WFT0518", WARNING, "A policy names a port that no workload declares",
          "No call arrives at that port, so the rule matches nothing at that port."),
    Check("WFT0519", WARNING, "A rule matches callers' identities where mutual TLS is disabled",
          "Without mutual TLS, no caller has an identity, so the rule matches nothing. Set the PeerAuthentication to "
          "PERMISSIVE or STRICT."),
    Check("WFT0521", WARNING, "A policy names a trust domain that is not this mesh's",
          "No certificate of this mesh has that trust domain, so the entry matches no caller. List former trust "
          "domains in `trustDomainAliases` of the MeshConfig."),
    Check("WFT0522", WARNING, "A policy names a principal that no workload has",
          "No workload runs with that identity, so the entry matches no caller."),
    Check("WFT0523", WARNING, "A policy names a namespace in which no workload runs",
          "No caller comes from that namespace, so the entry matches no caller."),
    Check("WFT0524", WARNING, "A policy names a service account that no workload runs as",
          "No caller has that service account, so the entry matches no caller."),
    Check("WFT0531", WARNING, "A policy selects workloads without a proxy",
          "Only a proxy enforces a policy, so the policy is not enforced for these workloads."),
    Check("WFT0532", WARNING, "A policy selects ports that are excluded from the proxy",
          "Annotations exclude the ports from interception, so no proxy enforces the policy for calls to them."),
    Check("WFT0533", WARNING, "A rule matches callers' identities where plaintext is accepted",
          "A caller in plaintext has no certificate, and therefore no identity: no DENY rule that names callers "
          "matches it, and an ALLOW rule for all but some callers allows it. Make the PeerAuthentication STRICT."),
    Check("WFT0541", WARNING, "A RequestAuthentication selects no workload",
          "No workload has the labels of the RequestAuthentication's selector, or no workload runs in its namespace, "
          "so the RequestAuthentication has no effect.", ("IST0127",)),
    Check("WFT0542", WARNING, "Pods of a mesh on one machine cannot fetch an issuer's keys",
          "The pods of a mesh on one machine cannot call hosts outside the mesh, so they cannot fetch the keys from "
          "`jwksUri`, and every request with a token of this issuer gets 401. Write the keys into the rule instead, "
          "as `jwks`, or run the mesh with `weft up --egress`."),
    Check("WFT0543", WARNING, "Tokens are checked on a port whose protocol is not declared",
          "No Service declares the port's protocol, or Services declare different protocols, so proxies detect it. An "
          "HTTP request that is disguised as raw TCP reaches the workload, and its token is not checked. Begin the "
          "name of the Service's port with http.", ("IST0119",)),
    Check("WFT0544", WARNING, "A policy about tokens where no RequestAuthentication checks them",
          "Without a RequestAuthentication for the workload, no token is checked, and every request counts as a "
          "request without a token: an ALLOW rule that needs a token matches no request. Add a RequestAuthentication "
          "for the workload."),
    Check("WFT0545", WARNING, "A policy matches tokens of an issuer that no RequestAuthentication trusts",
          "No RequestAuthentication for the policy's workloads has the issuer, so the entry of `requestPrincipals` "
          "matches no request."),
    Check("WFT0546", WARNING, "A route matches claims of a token where no token is checked",
          "Only a gateway whose workload a RequestAuthentication selects checks tokens before it chooses a route. "
          "Elsewhere a match on `@request.auth.claims` never applies.", ("IST0149",)),
    # Telemetry
    Check("WFT0601", WARNING, "A Telemetry names a provider that does not exist",
          "The Telemetry logs nothing to that provider. Define providers in `extensionProviders` of the MeshConfig.",
          ("IST0157",)),
    Check("WFT0602", WARNING, "A Telemetry names a provider that weft does not support",
          "The Telemetry logs nothing to that provider. Use an `envoyFileAccessLog` provider, and collect the logs "
          "from its file."),
    Check("WFT0603", WARNING, "A Telemetry selects no workload",
          "No workload of the Telemetry's namespace has the labels of its selector, so the Telemetry has no effect.",
          ("IST0127",)),
    Check("WFT0604", WARNING, "Two Telemetries are for the same workloads",
          "The older Telemetry is used, and the other has no effect. Merge both into one.", ("IST0159", "IST0160")),
    # The edge
    Check("WFT0701", WARNING, "A Gateway selects no workload",
          "No workload has the labels of the Gateway's selector, so no proxy serves the Gateway.", ("IST0101",)),
    Check("WFT0702", WARNING, "Two Gateways have the same host and port for the same workloads",
          "For a TLS server name, and for a TCP port, only the older Gateway is served. For plain HTTP, the routes of "
          "both Gateways are merged.",
          ("IST0145",)),
    Check("WFT0703", WARNING, "Servers of one port have different protocols",
          "A proxy cannot distinguish HTTP, TLS and TCP on one port of the same workloads. The oldest Gateway decides "
          "the protocol or, if the Gateways have no creation time, the first Gateway by name. Servers with another "
          "protocol are left out. Use one port per protocol.",
          ("IST0145",)),
    Check("WFT0704", WARNING, "A server's certificate is missing",
          "The Secret does not exist in the namespace of the gateway's pods, or lacks what the server needs, so "
          "connections to the server's hosts are closed until the Secret is complete. Other hosts are served.",
          ("IST0101", "IST0161")),
    Check("WFT0705", WARNING, "A server's certificate has expired",
          "Clients reject the certificate."),
    Check("WFT0706", WARNING, "A server's certificate is for other hosts",
          "Clients that call the host reject the certificate. A wildcard in a certificate stands for exactly one "
          "label of a host name."),
    Check("WFT0707", INFO, "A Gateway serves a host without routes",
          "Requests for the host get 404; if the server is TCP or passes TLS through, connections for the host are "
          "closed. Add the Gateway to the `gateways` of a VirtualService for the host."),
    Check("WFT0708", WARNING, "A Gateway selects workloads that are no gateways",
          "Only gateways serve a Gateway; a sidecar does not. On one machine, a gateway is a Workload with the field "
          "`gateway`; on a cluster, a pod with the injection template `gateway`."),
    Check("WFT0709", INFO, "A gateway's port is not published",
          "The Workload publishes other ports on the machine, but not this port, so this port can be called only "
          "from within the mesh. To publish the port, add it to `publish`."),
    Check("WFT0710", WARNING, "No Gateway serves a published port",
          "No Gateway that selects the Workload has a server for that port, so connections to the port are closed at "
          "once. In `publish`, `port` is the gateway's own port, and `hostPort` the machine's."),
    Check("WFT0711", WARNING, "No Service of a gateway has the port of a server",
          "The gateway's pods listen on the server's port, but no Service that selects these pods has this port, so it "
          "cannot be called through a Service. Add the port to the Service.", ("IST0162",)),
    # Namespaces, pods and injection
    Check("WFT0801", WARNING, "A namespace has two labels about injection",
          "The label `istio-injection` overrides `istio.io/rev`, which has no effect. Remove `istio-injection` to "
          "select a revision; otherwise remove `istio.io/rev`.", ("IST0123",)),
    Check("WFT0802", WARNING, "A namespace's `istio-injection` is neither enabled nor disabled",
          "The pods of the namespace get no proxy. Write `enabled` or `disabled`."),
    Check("WFT0803", WARNING, "A namespace selects a revision that is not installed",
          "New pods of the namespace get no proxy. `weft x revision list` lists the installed revisions.", live=True),
    Check("WFT0804", WARNING, "A pod has no proxy, although its namespace enables injection",
          "The pod was created before the namespace got the label, or while the webhook was unavailable. Restart the "
          "pod's workload.",
          ("IST0103",), live=True),
    Check("WFT0805", WARNING, "A pod's proxy is of another revision than its namespace selects",
          "The proxy stays connected to the control plane of its own revision until the pod is restarted.", live=True),
    Check("WFT0806", WARNING, "Pods have another proxy image than new ones would get",
          "This is usual after an upgrade. Restart the workloads of these pods.", ("IST0105", "IST0158"), live=True),
    Check("WFT0807", WARNING, "An application runs as user 1337",
          "User 1337 is the proxy's, so the application's calls are not intercepted: they have no mutual TLS, no "
          "policy and no telemetry. Run the application as another user.", ("IST0144",)),
    Check("WFT0808", WARNING, "A pod on the node's network requests a proxy",
          "A pod with `hostNetwork` gets no proxy, because the redirect to the proxy would intercept the connections "
          "of the whole node. Remove `hostNetwork`, or the label that requests the proxy."),
    Check("WFT0809", WARNING, "An annotation or label for injection is on the wrong object",
          "The annotation or label has an effect only on pods. Write it in the pod's `metadata`; in a Deployment or "
          "another workload, in `spec.template.metadata`.", ("IST0107",)),
    Check("WFT0810", WARNING, "weft does not read an annotation",
          "The annotation is misspelled, or is an annotation of Istio that has no effect in weft.", ("IST0108",)),
    Check("WFT0811", WARNING, "An annotation's value cannot be used",
          "The injector rejects the pod, so the pod cannot be created.", ("IST0125",)),
    Check("WFT0812", INFO, "`sidecar.istio.io/inject` is an annotation",
          "The annotation is deprecated, because the API server can select pods by a label, but not by an annotation. "
          "Write it as a label.", ("IST0135",)),
    Check("WFT0813", WARNING, "A container listens on a port that is reserved for the proxy",
          "Ports 15000 to 15090 are reserved for the proxy. If the container and the proxy use the same port, the one "
          "that starts later cannot listen on it. Use another port."),
    Check("WFT0814", WARNING, "`image: auto` in a pod that is not injected",
          "Only the injector replaces `auto` with an image, so the pod cannot start without injection.",
          ("IST0146", "IST0147")),
    Check("WFT0815", WARNING, "The API server cannot reach a webhook",
          "Depending on the `failurePolicy` of the webhook, pods are created without a proxy or not at all, and "
          "objects are not validated.", ("IST0139",), live=True),
    Check("WFT0816", INFO, "A namespace has no label about injection",
          "The pods of the namespace get no proxy. Label the namespace `istio-injection: enabled`, or `disabled` if "
          "that is intended.",
          ("IST0102",)),
    Check("WFT0817", WARNING, "A kind could not be read from the cluster",
          "Your credentials do not allow reading the kind, or the API server does not respond, so nothing that "
          "depends on the kind was checked.", ("IST0141",), live=True),
    Check("WFT0818", WARNING, "A Workload's program or working directory cannot be used",
          "The program or directory does not exist, or the program is not executable, so the Workload's pods restart "
          "again and again."),
    Check("WFT0819", WARNING, "Ambient mode is selected",
          "A namespace or workload has the label `istio.io/dataplane-mode: ambient`. weft has no ambient mode: "
          "without a sidecar, the pods get no identity, and no policy applies to them. Label the namespace for "
          "injection."),
    Check("WFT0820", WARNING, "The application's metrics cannot be scraped",
          "The pod's annotations `prometheus.io/scrape` and `prometheus.io/port` name a port at which the pod's "
          "proxy accepts only mutual TLS, so scrapes in plaintext are rejected. Set the port to PERMISSIVE in "
          "`portLevelMtls`, or exclude it from interception with `traffic.sidecar.istio.io/excludeInboundPorts`."),
    Check("WFT0821", WARNING, "An annotation of a Service is not known",
          "The name of the annotation has a domain of Istio, and neither Istio nor weft reads it on a Service. "
          "Often the name is misspelled.", ("IST0108",)),
    Check("WFT0822", INFO, "An annotation is deprecated",
          "Istio has deprecated the annotation of a pod or a Service, and weft ignores it. The message names what "
          "replaces it.", ("IST0135",)),
    Check("WFT0823", WARNING, "Apps of the mesh can read a private key",
          "A file with a Secret, or a key file that a Gateway or DestinationRule names, can be read by users other "
          "than the file's owner. Each app runs as a user of its own, so it can read the key: because all directories "
          "above the file are open, or because its Workload declares the file (`workingDirectory`, `mounts`)."),
    # The Gateway API
    Check("WFT0901", WARNING, "A route is not accepted by its parent",
          "The parent (a Gateway or Service) does not exist, has no such listener or port, or does not allow this "
          "route, so the parent does not use the route's rules. The reason in the message is the Gateway API's, as in "
          "the route's status."),
    Check("WFT0902", WARNING, "A route has a backend that cannot be called",
          "The backend is not a Service, the Service or its port does not exist, or the Service is in another "
          "namespace without a ReferenceGrant. The share of requests that the weight gives to this backend gets 500."),
    Check("WFT0903", WARNING, "A listener of a Gateway cannot be served",
          "The listener's protocol is not supported, another listener has the same port or hostname, or the "
          "listener's certificate is missing."),
    Check("WFT0904", WARNING, "A BackendTLSPolicy is not in effect",
          "The policy's Service or port does not exist, an older policy has the same target, or the policy has no "
          "usable CA certificate. Without a usable CA certificate, all calls to the Service fail."),
    Check("WFT0905", WARNING, "A Gateway has no proxy",
          "No workload in the Gateway's namespace has the label `gateway.networking.k8s.io/gateway-name` with the "
          "Gateway's name, so no proxy serves the Gateway. Run a gateway workload with this label."),
    Check("WFT0906", WARNING, "A Gateway's class does not exist",
          "weft serves the class `weft`, and the classes whose GatewayClass names weft's controller. The Gateway has "
          "another `gatewayClassName`, and no GatewayClass has that name, so no controller serves the Gateway."),
    Check("WFT0907", WARNING, "A Gateway does not verify client certificates",
          "With `mode: AllowInsecureFallback`, HTTPS listeners accept clients without a certificate and clients with a "
          "certificate of any CA. Policies treat all these clients as clients without a certificate, and backends must "
          "verify the certificate in `x-forwarded-client-cert` themselves. Access logs contain the unverified names, "
          "and an external authorizer that is called over gRPC gets them in `source.principal`."),
    Check("WFT0908", WARNING, "A Gateway cannot use its client certificate for backends",
          "The Secret that the Gateway names in `tls.backend` does not exist, has no certificate with its key, or is "
          "in another namespace without a ReferenceGrant. Calls from this Gateway to Services with a "
          "BackendTLSPolicy fail."),
    Check("WFT0909", WARNING, "A ListenerSet is not accepted by its Gateway",
          "The Gateway in `parentRef` does not exist or is of a class that no controller serves, or its "
          "`allowedListeners` do not allow ListenerSets of this namespace; without `allowedListeners` it allows none. "
          "The listeners of the ListenerSet are not served."),
)  # fmt: skip

CHECKS: Mapping[str, Check] = {check.code: check for check in _CHECKS}


def in_area(area: str, checks: Iterable[Check] = _CHECKS) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.code[3:5] == area)
