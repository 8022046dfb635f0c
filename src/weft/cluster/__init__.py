"""The control plane on Kubernetes: its ports, webhooks, root Secret, token reviews and pod placements."""
