"""The control plane: reads objects, keeps the mesh up to date, and sends every group of proxies (those with equal
config) the resources that changed for it."""
