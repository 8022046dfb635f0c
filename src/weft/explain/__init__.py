"""What would happen to a request: the resources that Envoy gets are read, decision by decision, from the caller's
socket to the workload. Pure: what resources do not say is asked of a `World`."""
