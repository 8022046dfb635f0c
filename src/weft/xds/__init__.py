"""Aggregated discovery (ADS): a server that sends named, versioned bytes to clients on streams and records which
versions each client accepted.

Fill a `snapshot.Snapshots`, pass it to a `server.XdsServer` with a `StreamObserver`, and call the server's `listen`.
This package contains nothing about meshes.
"""
