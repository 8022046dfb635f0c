"""Aggregated discovery (ADS): serves named bytes on streams and reports which versions each client accepted.

Fill a `snapshot.Snapshots`, pass it to a `server.XdsServer` with a `StreamObserver`, and listen. Nothing here knows a
mesh.
"""
