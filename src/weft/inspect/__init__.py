"""Commands and debug pages that inspect a mesh: explain, describe, diff, audit, analyze and Istio's debug endpoints.
No module in here serves a proxy or changes a mesh."""
