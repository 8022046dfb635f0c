"""Commands that check YAML before it is applied: validate, analyze, test, diff, kube-inject, kube-export."""
