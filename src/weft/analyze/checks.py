"""Every check there is: its code, how bad what it finds is, and what to tell somebody who asks. Whoever finds something
names the code; the reference page and `weft analyze --list` are made from this table.

Rule: a code means the same for ever. One that is no longer used stays in `RETIRED`, so that nobody takes it again. The
first two digits are the area, and areas have room left.
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
    more: str  # what comes of it, and what to do
    istio: tuple[str, ...] = ()  # the codes of `istioctl analyze` for the same
    live: bool = False  # only a running cluster can tell


AREAS: Mapping[str, str] = {
    "00": "Reading",
    "01": "Routes: VirtualService",
    "02": "Rules for calls: DestinationRule",
    "03": "Services: Service, ServiceEntry, WorkloadEntry",
    "04": "Scope: Sidecar, exportTo",
    "05": "Who may call: PeerAuthentication, AuthorizationPolicy, RequestAuthentication",
    "06": "Telemetry",
    "07": "The edge: Gateway",
    "08": "Namespaces, pods and injection",
    "09": "The Gateway API: Gateway, HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, BackendTLSPolicy",
}

RETIRED: frozenset[str] = frozenset({"WFT0103"})

_CHECKS: tuple[Check, ...] = (
    # Reading
    Check("WFT0001", ERROR, "An object or a file is refused",
          "It cannot be read, or says something that cannot be. What was good before stays in effect; a refused policy "
          "keeps everybody out.", ("IST0106", "IST0122")),
    Check("WFT0002", WARNING, "A field is not acted on, deprecated, or means something else than it seems",
          "The object is in effect without it.", ("IST0133", "IST0002")),
    Check("WFT0003", WARNING, "A kind that changes how a mesh behaves, and that weft does not act on",
          "An EnvoyFilter, a WasmPlugin or a ProxyConfig has no effect. Say it with Istio's typed resources, or "
          "keep whoever acts on it."),
    # Routes
    Check("WFT0101", WARNING, "A VirtualService is for a host that nobody has",
          "No Service or ServiceEntry has the host, so its http routes are met only by callers that resolve it anyway, "
          "and its tls and tcp routes by nobody. "
          "Often a misspelled name, or a name with a dot that is not a full one.", ("IST0101",)),
    Check("WFT0102", WARNING, "A VirtualService names a Gateway that does not exist",
          "Nothing serves its routes there, and a match for it is never met. `mesh` stands for all sidecars.",
          ("IST0101",)),
    Check("WFT0104", WARNING, "A route leads to a host that does not exist",
          "Requests sent there fail with 503, connections are closed.", ("IST0101",)),
    Check("WFT0105", WARNING, "A route leads to a host that is hidden from its callers",
          "The host's `exportTo` keeps it from them: requests sent there fail with 503. What a Sidecar hides can still "
          "be called by the routes of what it shows."),
    Check("WFT0106", WARNING, "A route leads to a port that the destination does not have",
          "Requests sent there fail with 503."),
    Check("WFT0107", WARNING, "A route leads to a subset that no DestinationRule names",
          "Requests sent there fail with 503. Subsets are named in the `subsets` of a DestinationRule for that host.",
          ("IST0101",)),
    Check("WFT0108", WARNING, "Two VirtualServices have http routes for one host",
          "Between workloads only the older one's are used. Put the routes of one host into one VirtualService, or "
          "delegate.", ("IST0109",)),
    Check("WFT0109", WARNING, "A delegated route is left out",
          "The delegate is not there, has hosts of its own, is not exported to the root's namespace or delegates "
          "further, or its match is not within that of the root's route."),
    Check("WFT0110", WARNING, "A header's value names a command that Envoy does not know",
          "It is sent as it is written. A percent sign is written as `%%`."),
    Check("WFT0111", WARNING, "A route is never used",
          "A route above it takes all that it matches. Put the narrower one first.", ("IST0130",)),
    Check("WFT0112", WARNING, "A match stands in a route above already",
          "This part of the route's matches is never used.", ("IST0131",)),
    Check("WFT0113", INFO, "The weights of a route do not add up to 100",
          "They are shares of their sum: 90 and 5 are 94.7 % and 5.3 %."),
    Check("WFT0114", WARNING, "A route names no port, and the destination does not have the one that was called",
          "It has several others, and nobody says which is meant: requests fail with 503, and copies of them go to "
          "nobody.", ("IST0112",)),
    Check("WFT0115", WARNING, "A try may last as long as the whole request",
          "With `perTryTimeout` not below `timeout`, the request ends before it is tried again."),
    Check("WFT0116", INFO, "A fault ends every request",
          "`fault.abort` at 100 % on a route without a match: nobody gets an answer from the service. Right for a "
          "test, and easily left behind."),
    Check("WFT0117", WARNING, "Requests are mirrored to where they go anyway",
          "The same host and subset gets each request twice. Mirror to another subset or host."),
    Check("WFT0118", WARNING, "A match is for a port that the host does not have",
          "The route's match is never met."),
    Check("WFT0119", WARNING, "A match is for callers that do not exist",
          "No workload has the `sourceLabels`, or nothing runs in the `sourceNamespace`: the match is never met."),
    Check("WFT0120", WARNING, "Routes of a kind that the host's ports do not carry",
          "`http` routes are used on HTTP ports only, `tls` on TLS and HTTPS, `tcp` on all others: here they are used "
          "nowhere, or a match is for a port that carries something else. Often the name of the Service's port lacks "
          "its protocol. At a gateway, TLS that is passed on has `tls` routes alone, HTTPS that it ends "
          "`http`, TLS that it ends and TCP `tcp`.", ("IST0118",)),
    Check("WFT0121", WARNING, "A VirtualService without hosts that nobody delegates to",
          "It is a delegate, and no route of another VirtualService hands over to it: nothing uses it."),
    Check("WFT0122", WARNING, "A Gateway does not have a VirtualService's host",
          "The Gateway serves other hosts, or has this one for the routes of another namespace alone: these routes are "
          "never met there.", ("IST0132",)),
    Check("WFT0123", WARNING, "A redirect leads to where the request came from",
          "It changes neither path, host, port nor scheme of what it matches: clients go round in circles."),
    Check("WFT0124", WARNING, "A route asks for a method in lower case",
          "Methods are case-sensitive, and every client sends GET, POST and the like in upper case: the route is never "
          "met. Write the method in upper case."),
    Check("WFT0125", INFO, "A fault is on every request of a route",
          "Each of them is delayed or aborted, whoever calls. Where this was a test, remove the `fault`; where it is "
          "one, match a header that only the test sends."),
    Check("WFT0126", INFO, "A POST may be acted on twice",
          "`retryOn` has a request sent again after 5xx, gateway-error or reset, when the server may have acted on it, "
          "and the route does not ask for methods that may be repeated. Match those in a route of its own, or let only "
          "what never arrived be sent again."),
    # Rules
    Check("WFT0201", WARNING, "A DestinationRule is for a host that nobody has",
          "The rule has no effect.", ("IST0101",)),
    Check("WFT0202", WARNING, "A subset that nobody belongs to",
          "No workload behind the host has its labels: nobody answers calls to it."),
    Check("WFT0203", WARNING, "A DestinationRule is for callers that do not exist",
          "No workload of its namespace has the labels of `workloadSelector`.", ("IST0127",)),
    Check("WFT0204", WARNING, "Two DestinationRules of one namespace contradict each other about one host",
          "Rules for one host are merged: everybody's subsets, and the traffic policy of the oldest that has one. Of "
          "two subsets with one name, the older rule's is used. Write both into one."),
    Check("WFT0205", WARNING, "Nobody checks who answers",
          "With `insecureSkipVerify` any certificate will do.", ("IST0128", "IST0129")),
    Check("WFT0206", WARNING, "No name tells who may answer",
          "Any certificate will do that the authorities have signed. Set `sni` or `subjectAltNames`."),
    Check("WFT0207", WARNING, "Calls in plaintext to workloads that take only mutual TLS",
          "`tls.mode: DISABLE` against a STRICT PeerAuthentication: the calls fail.", ("IST0113",)),
    Check("WFT0208", WARNING, "TLS without the mesh's certificate to a workload of the mesh",
          "`tls.mode: SIMPLE` towards a sidecar: the calls fail. Leave `tls` out.", ("IST0113",)),
    Check("WFT0209", WARNING, "Mutual TLS to a workload without a proxy",
          "`tls.mode: ISTIO_MUTUAL`, and nobody is there to take it: the calls fail. A gateway takes it where the "
          "mode of its own server is ISTIO_MUTUAL."),
    Check("WFT0210", WARNING, "Mutual TLS to workloads that have it disabled",
          "`tls.mode: ISTIO_MUTUAL` against a PeerAuthentication of mode DISABLE: the calls fail.", ("IST0113",)),
    Check("WFT0211", WARNING, "Behind a headless service some take mutual TLS and some do not",
          "Its callers name an address, which does not say who takes it: all of them are called in plaintext."),
    Check("WFT0212", WARNING, "A rule for a port that the host does not have",
          "The entry of `portLevelSettings` has no effect."),
    Check("WFT0213", WARNING, "Balancing by something that no request there has",
          "Headers, cookies and query parameters are HTTP's, and no port that this is for carries it: connections go "
          "anywhere."),
    Check("WFT0214", WARNING, "A certificate file of a DestinationRule cannot be used",
          "It is not there, or cannot be read by a proxy: calls fail."),
    Check("WFT0215", WARNING, "Failover between places without outlier detection",
          "`failover` and `failoverPriority` need somebody who notices that an endpoint is not well: without "
          "`outlierDetection` all endpoints are called alike."),
    Check("WFT0216", WARNING, "Shares of calls for places in which nobody is",
          "`distribute` sends calls from a place only to places that no endpoint is in: they fail."),
    Check("WFT0217", WARNING, "A tunnel that requests or connections do not go through",
          "`tunnel` is for connections: of tcp and tls routes, and of ports that carry no HTTP. Requests of an http "
          "route go to the host itself, which is asked as if it were their goal."),
    Check("WFT0218", WARNING, "The destinations of one route have different tunnels",
          "A proxy opens one tunnel for all connections of a route: that of the first destination."),
    Check("WFT0219", WARNING, "A rule's Secret is not there",
          "`credentialName` names a Secret of the namespace of those who call, which are gateways, or the workloads "
          "that `workloadSelector` selects. Where it is missing, or lacks what the mode needs, they call nobody: 503.",
          ("IST0101",)),
    Check("WFT0220", WARNING, "A route to a subset of a host that is called by address",
          "Callers of a headless service, and of a host with `resolution: NONE`, name the very address that is called: "
          "whoever is there answers, in the subset or not. Routes of another host do choose among a headless service's "
          "pods."),
    Check("WFT0221", WARNING, "Balancing where callers name the address",
          "Behind a headless service, and a host with `resolution: NONE`, sidecars call the very address that their "
          "caller names: `loadBalancer` has no effect, nor have `warmup` and a hash."),
    Check("WFT0222", WARNING, "Settings of HTTP for ports that carry none",
          "`connectionPool.http` says how requests are sent, and no port that it is for is HTTP: its `idleTimeout`, "
          "`maxRequestsPerConnection`, `maxConcurrentStreams`, `h2UpgradePolicy` and `useClientProtocol` have no "
          "effect. Connections have settings of their own in `connectionPool.tcp`; and a port that does carry HTTP "
          "begins its name with http."),
    Check("WFT0223", WARNING, "A number of retries beside a budget for them",
          "With a `retryBudget`, which limits retries to a share of the requests under way, `maxRetries` has no "
          "effect. Keep one of the two."),
    Check("WFT0224", WARNING, "TLS goes into TLS",
          "A rule, or a BackendTLSPolicy, has proxies speak TLS to a port to which callers' own TLS is passed on as it "
          "comes: by a `tls` route, a TLSRoute of a listener in mode Passthrough, or because the port is declared as "
          "TLS or HTTPS. Whoever answers finds a handshake within what it has opened, and callers see theirs fail. End "
          "the callers' TLS at the gateway, or ask for none."),
    # Services
    Check("WFT0301", WARNING, "A service selects nobody",
          "No workload of its namespace has its labels: nobody answers its calls.", ("IST0127",)),
    Check("WFT0302", WARNING, "A service's target is a port name that nobody has",
          "Nobody answers on that port."),
    Check("WFT0303", WARNING, "A service's target is a port that nobody declares",
          "The Workloads behind it list their ports, and this is none of them."),
    Check("WFT0304", WARNING, "Two Services have one address",
          "Proxies cannot tell who of them is called."),
    Check("WFT0305", WARNING, "A service's port is one of the proxy's own",
          "It cannot be reached through a sidecar."),
    Check("WFT0306", WARNING, "A port that takes every connection to its number",
          "It is not HTTP or TLS and the host has no address, so nothing but the number tells its connections from "
          "others. List `addresses`.", ("IST0134",)),
    Check("WFT0307", INFO, "A port does not say what it carries",
          "Its first bytes are looked at, which costs time, and a server that speaks first is late. Begin its name "
          "with the protocol (`http-web`), or set `appProtocol`.", ("IST0118",)),
    Check("WFT0308", WARNING, "One port of a workload is HTTP to one service and not to another",
          "A caller's proxy says by which one it comes, and both work. But callers of the other have no routes, "
          "policies see no path or method of theirs, and by it HTTP can come in disguise. Of callers without a proxy "
          "nobody knows by which one they come.",
          ("IST0116",)),
    Check("WFT0309", WARNING, "A port's name says HTTP, and its number is a database's",
          "At 3306, 5432, 6379, 27017 and the like there usually is something else; taken for HTTP, its bytes are "
          "refused. Begin the name with tcp, mysql, redis or mongo."),
    Check("WFT0310", WARNING, "ExternalName services go round in circles",
          "Each is only another name for the next: nobody ever answers."),
    Check("WFT0311", WARNING, "A service is open to the outside, and its workloads take only mutual TLS",
          "Who calls a NodePort or a load balancer from outside the mesh has no certificate of it and is refused."),
    Check("WFT0312", WARNING, "A host is claimed twice",
          "A ServiceEntry for a host that a Service or another ServiceEntry of its namespace has: the first one "
          "decides, and the ports and endpoints of this one are not used."),
    Check("WFT0313", WARNING, "Two ServiceEntries have one address and port",
          "Connections that are not HTTP or TLS cannot be told apart: one of the two gets all."),
    Check("WFT0314", WARNING, "A gRPC client without a proxy cannot call a service",
          "It speaks plaintext, and the service takes only mutual TLS."),
    Check("WFT0315", WARNING, "A ServiceEntry with fixed endpoints has none",
          "With `resolution: STATIC`, `endpoints` or a `workloadSelector` say who answers: here nobody does."),
    Check("WFT0316", INFO, "A WorkloadEntry that no service selects",
          "Nobody is sent there."),
    Check("WFT0317", WARNING, "Nobody behind a service is ready",
          "Pods are there, but none passes its readiness probe: calls fail with 503.", live=True),
    Check("WFT0318", WARNING, "Two ports of one service lead to one port, as different protocols",
          "A caller's proxy says by which one it comes, and both work. But callers of the one that is not HTTP have no "
          "routes, and policies see no path or method of theirs."),
    Check("WFT0319", INFO, "A port is UDP, which is left alone",
          "Only TCP is taken to the proxies. UDP goes its way as without a mesh: no routes, no policies, no TLS."),
    Check("WFT0320", WARNING, "A WorkloadEntry has an address that a service which selects it cannot call",
          "A Service, or a ServiceEntry with `resolution: STATIC`, does not look names up, and one that does cannot "
          "call a Unix socket. The service's other endpoints are called."),
    Check("WFT0321", WARNING, "One port of a workload is HTTP/1.1 in one place and HTTP/2 in another",
          "Between proxies nobody can tell them apart: the workload is spoken to as the oldest Service says, or the "
          "first port of one. gRPC does not pass where that is HTTP/1.1, and an application that speaks only HTTP/1.1 "
          "understands nothing where it is HTTP/2. One that speaks both is spoken to as its callers do by "
          "`useClientProtocol` of a DestinationRule."),
    # Scope
    Check("WFT0401", WARNING, "A Sidecar shows a host that nobody has",
          "The entry of `egress.hosts` shows nothing: calls to what was meant are not known to the proxy."),
    Check("WFT0402", WARNING, "A Sidecar shows a namespace that does not exist",
          "The entry of `egress.hosts` shows nothing."),
    Check("WFT0403", WARNING, "A Sidecar is for nobody",
          "No workload of its namespace has the labels of `workloadSelector`.", ("IST0127",)),
    Check("WFT0404", WARNING, "Two Sidecars are for a whole namespace",
          "The older one decides, the other has no effect.", ("IST0111",)),
    Check("WFT0405", WARNING, "Two Sidecars select one workload",
          "The older one decides there, and nothing of the other is used.", ("IST0110",)),
    Check("WFT0406", WARNING, "`exportTo` names a namespace that does not exist",
          "Nobody sees the object by that entry. Often a misspelled name."),
    Check("WFT0407", WARNING, "A Sidecar sends what it does not know to a proxy that does not exist",
          "Nobody has the host of `egressProxy`, or not that port: calls to hosts outside the mesh fail."),
    Check("WFT0408", WARNING, "A Sidecar shows a port that none of its hosts has",
          "The `egress` listener with that port shows nothing: calls to what was meant are not known to the proxy."),
    # Who may call
    Check("WFT0501", WARNING, "Two PeerAuthentications are for the same workloads",
          "The older one decides, the other has no effect."),
    Check("WFT0502", WARNING, "A PeerAuthentication with a selector in the root namespace",
          "There it would be for the whole mesh; with a selector it is for nobody."),
    Check("WFT0503", WARNING, "A PeerAuthentication is for nobody",
          "No workload of its namespace has its labels, or nothing runs there.", ("IST0127",)),
    Check("WFT0504", WARNING, "STRICT mutual TLS where no proxy is",
          "Nothing is there that would refuse plaintext."),
    Check("WFT0505", WARNING, "`portLevelMtls` names a service's port, not the workload's",
          "The mode has no effect: write the number at which the workload itself listens."),
    Check("WFT0506", WARNING, "`portLevelMtls` names a port that nobody declares",
          "The mode has no effect."),
    Check("WFT0511", WARNING, "An AuthorizationPolicy guards nobody",
          "No workload has its labels, or nothing runs in its namespace.", ("IST0127",)),
    Check("WFT0512", WARNING, "A CUSTOM policy names an authorizer that does not exist",
          "What it would be asked about is denied. Authorizers stand in `extensionProviders` of the mesh's settings.",
          ("IST0101",)),
    Check("WFT0513", WARNING, "An authorizer's service does not exist",
          "What it would be asked about is denied.", ("IST0101",)),
    Check("WFT0514", WARNING, "A policy names a service's port, not the workload's",
          "Nothing is called at that number: write the one at which the workload itself listens."),
    Check("WFT0515", WARNING, "An ALLOW rule asks for HTTP on a port that carries something else",
          "It lets nobody in there: hosts, paths, methods, headers and tokens are HTTP's."),
    Check("WFT0516", WARNING, "A rule that denies or asks means more on a port that does not carry HTTP",
          "What only HTTP has is left out there, so the rule matches every connection that the rest of it matches. Add "
          "`ports` to its operations. At a gateway these are servers of TCP, and of TLS that is passed on."),
    Check("WFT0517", WARNING, "An authorizer for HTTP is to decide about other connections",
          "It cannot be asked, so every connection that the rule matches is denied."),
    Check("WFT0518", WARNING, "A policy names a port that nobody declares",
          "No call is ever made to it: the rule matches nothing."),
    Check("WFT0519", WARNING, "A rule asks who calls where mutual TLS is disabled",
          "Without it no caller has an identity: the rule matches nothing."),
    Check("WFT0521", WARNING, "A policy names a trust domain that is not this mesh's",
          "No certificate here is of that domain: the entry matches nobody. Former domains stand in "
          "`trustDomainAliases`."),
    Check("WFT0522", WARNING, "A policy names a principal that nobody is",
          "No workload runs as such: the entry matches nobody."),
    Check("WFT0523", WARNING, "A policy names a namespace in which nothing runs",
          "The entry matches nobody."),
    Check("WFT0524", WARNING, "A policy names a service account that nobody runs as",
          "The entry matches nobody."),
    Check("WFT0531", WARNING, "A policy guards workloads without a proxy",
          "Nothing enforces it there."),
    Check("WFT0532", WARNING, "A policy guards ports that are kept from the proxy",
          "Annotations exclude them from interception: nothing enforces the policy there."),
    Check("WFT0533", WARNING, "A rule about callers, and plaintext is taken",
          "Who calls without a certificate is nobody: no DENY that names callers matches, and an ALLOW of all but some "
          "lets him in. Make the PeerAuthentication STRICT."),
    Check("WFT0541", WARNING, "A RequestAuthentication is for nobody",
          "No workload has its labels, or nothing runs in its namespace.", ("IST0127",)),
    Check("WFT0542", WARNING, "Keys that a pod of a local mesh cannot fetch",
          "It has no way out of the mesh: every token of the issuer gets 401. Write the keys themselves: `jwks`."),
    Check("WFT0543", WARNING, "Tokens are checked where nobody says what a port carries",
          "Or where Services say different things. HTTP can be disguised as something else there, unchecked. Begin the "
          "port's name with http.", ("IST0119",)),
    Check("WFT0544", WARNING, "A policy about tokens where nobody checks any",
          "Without a RequestAuthentication for the workload no request has a token: an ALLOW rule matches none."),
    Check("WFT0545", WARNING, "A policy wants tokens of an issuer that nobody trusts",
          "No RequestAuthentication for these workloads has the issuer: the entry of `requestPrincipals` matches "
          "none."),
    # Telemetry
    Check("WFT0601", WARNING, "A Telemetry names a provider that does not exist",
          "Nothing is written there.", ("IST0157",)),
    Check("WFT0602", WARNING, "A Telemetry names a provider that weft does not write to",
          "Nothing is written there. Use an envoyFileAccessLog, and collect from there."),
    Check("WFT0603", WARNING, "A Telemetry is for nobody",
          "No workload of its namespace has its labels.", ("IST0127",)),
    Check("WFT0604", WARNING, "Two Telemetries are for the same workloads",
          "The older one decides, the other has no effect.", ("IST0159", "IST0160")),
    # The edge
    Check("WFT0701", WARNING, "A Gateway selects nobody",
          "No workload has its labels: nothing serves it.", ("IST0101",)),
    Check("WFT0702", WARNING, "Two Gateways have the same host and port for the same workloads",
          "Of a name inside TLS, and of a port of bytes, the older Gateway is served. Routes of plain HTTP are merged.",
          ("IST0145",)),
    Check("WFT0703", WARNING, "Servers of one port speak different protocols",
          "HTTP, TLS and bytes cannot be told apart in time on one port of the same workloads: it speaks what the "
          "oldest Gateway says, or without ages the first by name. The other server is left out.",
          ("IST0145",)),
    Check("WFT0704", WARNING, "A server's certificate is not there",
          "The Secret is missing in the namespace of the gateway's pods, or lacks what the server needs: its hosts are "
          "closed until it is there. Others are served.", ("IST0101",)),
    Check("WFT0705", WARNING, "A server's certificate has expired",
          "Callers refuse it."),
    Check("WFT0706", WARNING, "A server's certificate is for other hosts",
          "Callers that ask for the host refuse it. A wildcard in a certificate stands for one label."),
    Check("WFT0707", INFO, "A Gateway serves a host for which there are no routes",
          "Every request for it is answered with 404, every connection closed. Bind a VirtualService to the Gateway."),
    Check("WFT0708", WARNING, "A Gateway selects workloads that are no gateways",
          "A sidecar serves no Gateway. On one machine a Workload has `gateway`, on a cluster a pod has the injection "
          "template `gateway`."),
    Check("WFT0709", INFO, "A gateway's port is not published",
          "The Workload publishes others of its ports on the machine. This one is reached from within the mesh alone."),
    Check("WFT0710", WARNING, "A gateway's published port serves nothing",
          "No Gateway that selects the Workload has a server at that port: who calls it is sent away at once. `port` "
          "is the gateway's own, and `hostPort` the machine's."),
    # Namespaces, pods and injection
    Check("WFT0801", WARNING, "A namespace has two labels about injection",
          "`istio-injection` wins over `istio.io/rev`, which has no effect. Keep one of them.", ("IST0123",)),
    Check("WFT0802", WARNING, "A namespace's `istio-injection` is neither enabled nor disabled",
          "Its pods get no proxy."),
    Check("WFT0803", WARNING, "A namespace asks for a revision that is not installed",
          "Its new pods get no proxy. `weft x revision list` shows which there are.", live=True),
    Check("WFT0804", WARNING, "A pod has no proxy, and its namespace wants one",
          "It was there before the label, or the webhook was away. Restart its workload.", ("IST0103",), live=True),
    Check("WFT0805", WARNING, "A pod's proxy is of another revision than its namespace asks for",
          "It stays with that control plane until it is restarted.", live=True),
    Check("WFT0806", WARNING, "Pods have another proxy image than new ones would get",
          "Usual after an upgrade. Restart the workloads.", ("IST0105", "IST0158"), live=True),
    Check("WFT0807", WARNING, "An application runs as user 1337",
          "That user is the proxy's: the application's calls are not intercepted, so they have no mutual TLS, no "
          "policy and no telemetry.", ("IST0144",)),
    Check("WFT0808", WARNING, "A pod on the node's network asks for a proxy",
          "With `hostNetwork` it gets none: a redirect would take the whole node's connections."),
    Check("WFT0809", WARNING, "An annotation or label of injection stands on the wrong object",
          "It has no effect there: it belongs to the pod, in a workload to `spec.template.metadata`.", ("IST0107",)),
    Check("WFT0810", WARNING, "An annotation that nobody reads",
          "It is misspelled, or Istio's and of no use here.", ("IST0108",)),
    Check("WFT0811", WARNING, "An annotation's value cannot be used",
          "The injector refuses the pod.", ("IST0125",)),
    Check("WFT0812", INFO, "`sidecar.istio.io/inject` is an annotation",
          "Deprecated: as a label it is seen by the API server too, which the annotation is not.", ("IST0135",)),
    Check("WFT0813", WARNING, "A container listens on one of the proxy's own ports",
          "15000 to 15090 are the proxy's: whoever is later cannot listen."),
    Check("WFT0814", WARNING, "`image: auto` in a pod that is not injected",
          "Only the injector knows which image that is: the pod cannot start.", ("IST0146", "IST0147")),
    Check("WFT0815", WARNING, "A webhook that the API server gets no answer from",
          "Pods are made without a proxy or not at all, and objects are not checked.", ("IST0139",), live=True),
    Check("WFT0816", INFO, "A namespace does not say whether its pods get a proxy",
          "They get none. Label it `istio-injection: enabled`, or `disabled` to say that it is meant.", ("IST0102",)),
    Check("WFT0817", WARNING, "A kind could not be read from the cluster",
          "Your credentials do not allow it, or the API server does not answer: nothing that depends on it was "
          "checked.", ("IST0141",), live=True),
    Check("WFT0818", WARNING, "A Workload's program or working directory cannot be used",
          "It is not there, or may not be executed: its pods start again and again."),
    # The Gateway API
    Check("WFT0901", WARNING, "A route is not accepted by its parent",
          "The Gateway or Service is not there, has no such listener or port, or does not take this route: its rules "
          "are met by nobody there. The reason is the standard's, as in the route's status."),
    Check("WFT0902", WARNING, "A route sends to somebody who cannot be called",
          "The Service or its port does not exist, is of another namespace that grants nothing, or is no Service at "
          "all: by their weight, requests are answered 500."),
    Check("WFT0903", WARNING, "A listener of a Gateway cannot serve",
          "Its protocol is not known, another listener has its port or hostname, or its certificate is not there."),
    Check("WFT0904", WARNING, "A BackendTLSPolicy is not in effect",
          "Its Service or port is not there, an older policy has the same one, or nobody can be believed: then the "
          "Service is not called at all."),
    Check("WFT0905", WARNING, "A Gateway has no proxy",
          "Its proxies are the gateways of its namespace with the label `gateway.networking.k8s.io/gateway-name` and "
          "its name; there is none."),
    Check("WFT0906", WARNING, "A Gateway's class is nobody's",
          "weft serves the class `weft`, and those whose GatewayClass names its controller. This one has another "
          "`gatewayClassName`, and no GatewayClass says whose that is: nothing serves it."),
)  # fmt: skip

CHECKS: Mapping[str, Check] = {check.code: check for check in _CHECKS}


def in_area(area: str, checks: Iterable[Check] = _CHECKS) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.code[3:5] == area)
