"""Kubernetes objects for tests: pods that run this machine's own programs, without an image to build."""

from tools.kube.cluster import HOST_IMAGE

USR = {"name": "usr", "hostPath": {"path": "/usr", "type": "Directory"}}


def container(name, *command, mounts=(), **more):
    """A container with the machine's programs."""
    return {
        "name": name,
        "image": HOST_IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "volumeMounts": [{"name": "usr", "mountPath": "/usr", "readOnly": True}, *mounts],
        **more,
    }


def pod(namespace, name, *containers, volumes=(), **more):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "containers": list(containers),
            "volumes": [USR, *volumes],
            "terminationGracePeriodSeconds": 1,
            **more,
        },
    }


def service(namespace, name, port, target, **more):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": port, "targetPort": target}], **more},
    }
