#!/usr/bin/python3
"""What Kubernetes would make of the StatefulSet in kubernetes.yaml, for podman kube play.

pods.py pod N FOLDER SECRET: prints the pod of replica N. Makes its volumes below FOLDER with the
owner and mode that the kubelet would give them, and copies the file SECRET there.
pods.py probe KIND: prints the words of the command of a startup, readiness or liveness probe.

podman 4.3 shares volumes of one name between pods, mounts the whole volume for a subPath, ignores
fsGroup, publishes containerPort on the machine, leaves $(NAME) as it is and splits the commands of
probes at blanks. So the pod gets its volumes as folders, no ports and no probes.
"""
import os
import shutil
import sys

import yaml

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kubernetes.yaml")


def make(path, mode, group):
    """Makes a folder as the kubelet does for fsGroup: root's, writable by the group."""
    os.makedirs(path, exist_ok=True)
    os.chown(path, 0, group)
    os.chmod(path, mode)


def host_path(mount, volumes, claims, folder, secret, group):
    """The hostPath volume in place of what a volumeMount names."""
    name, sub = mount["name"], mount.get("subPath", "")
    path = os.path.join(folder, name, sub)
    if name in claims:
        make(os.path.join(folder, name), 0o2775, group)
        make(path, 0o2775, group)
        return {"path": path, "type": "Directory"}
    volume = volumes[name]
    if "emptyDir" in volume:
        make(path, 0o2777, group)
        return {"path": path, "type": "Directory"}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copyfile(secret, path)
    os.chown(path, 0, group)
    os.chmod(path, volume["secret"]["defaultMode"])
    return {"path": path, "type": "File"}


def pod(stateful, n, folder, secret):
    name = f"{stateful['metadata']['name']}-{n}"
    folder = os.path.join(folder, name)
    spec = stateful["spec"]["template"]["spec"]
    claims = [c["metadata"]["name"] for c in stateful["spec"]["volumeClaimTemplates"]]
    volumes = {v["name"]: v for v in spec.pop("volumes")}
    group = spec["securityContext"]["fsGroup"]
    spec["hostname"] = name
    spec["volumes"] = []
    (container,) = spec["containers"]
    for i, mount in enumerate(container["volumeMounts"]):
        path = host_path(mount, volumes, claims, folder, secret, group)
        spec["volumes"].append({"name": f"v{i}", "hostPath": path})
        mount.pop("subPath", None)
        mount["name"] = f"v{i}"
    for e in container["env"]:
        if "value" in e:
            e["value"] = e["value"].replace("$(MASTER_ID)", name)
    for key in ("ports", "startupProbe", "readinessProbe", "livenessProbe"):
        del container[key]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def main():
    with open(FILE, encoding="utf-8") as f:
        (stateful,) = [d for d in yaml.safe_load_all(f) if d["kind"] == "StatefulSet"]
    if sys.argv[1] == "pod":
        print(yaml.safe_dump(pod(stateful, *sys.argv[2:])))
    else:
        (container,) = stateful["spec"]["template"]["spec"]["containers"]
        print("\n".join(container[sys.argv[2] + "Probe"]["exec"]["command"]))


main()
