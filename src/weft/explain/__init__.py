"""Predicts what would happen to a request: evaluates the resources that Envoy gets, decision by decision, from the
caller's socket to the workload. Pure: facts that are not in the resources come from a `World`."""
