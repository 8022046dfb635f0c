"""Aggregated discovery: named bytes in, streams of them out, and word of what each client took.

Fill a `snapshot.Snapshots`, give it to a `server.Server` with an `Observer`, and listen. Nothing here knows a mesh.
"""
