"""Predicts what would happen to a request, without sending one: evaluates the resources that Envoy gets, decision by
decision, from the caller's socket to the workload. Pure: facts that are not in the resources, such as the
workload at an address, come from a `World`."""
