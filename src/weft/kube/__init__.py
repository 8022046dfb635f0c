"""The Kubernetes API: connection, watches and writes. No other package calls it."""
