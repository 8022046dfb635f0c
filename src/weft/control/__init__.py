"""The control plane: reads objects, keeps the mesh up to date, and sends every group of proxies what changed for it."""
