"""Commands that run inside pods: iptables, redirect, drain, wait. They import nothing else of the command line."""
