"""Client of the Kubernetes API: connection, watches and writes. No other package of weft calls the API server."""
