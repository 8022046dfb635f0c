"""The node agent and the proxies of one machine: workload certificates, the sockets that serve them, Envoy processes,
traffic interception."""
