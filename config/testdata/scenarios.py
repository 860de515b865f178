#!/usr/bin/env python3
"""Makes scenarios.json: configuration folders and what the real Salt makes of them.

Run with the Python of an environment that has Salt 3008.3, as root:
    venv/bin/python scenarios.py > scenarios.json
"""
import json
import os
import sys
import tempfile

import salt.config
import salt.utils.yaml

NAMES = """id interface publish_port pki_dir cachedir sock_dir pidfile log_file key_logfile autosign_file autoreject_file autosign_grains_dir
token_dir syndic_dir cluster_id cluster_pki_dir cluster_peers cluster_pool_port auto_accept open_mode file_roots pillar_roots nodegroups hash_type
fileserver_backend file_ignore_glob file_ignore_regex timeout gather_job_timeout publish_session keep_jobs_seconds keysize root_dir peer""".split()

CASES = {
    "empty": {"master": "id: m1\n"},
    "blank file": {"master": ""},
    "zero is no document": {"master": "0\n"},
    "numeric id": {"master": "id: 17\n"},
    "leading zero id": {"master": "id: 017\n"},
    "float id": {"master": "id: 1.50\n"},
    "date id": {"master": "id: 2021-01-01\n"},
    "append domain": {"master": "id: m1\nappend_domain: example.org\n"},
    "append domain twice": {"master": "id: m1.example.org\nappend_domain: example.org\n"},
    "append domain dot": {"master": "id: m1.\nappend_domain: example.org\n"},
    "root dir": {"master": "id: m1\nroot_dir: /opt/r\n"},
    "root dir slash": {"master": "id: m1\nroot_dir: /opt/r/\npki_dir: /opt/r/pki\ncachedir: /opt/rx/cache\n"},
    "root dir absolute outside": {"master": "id: m1\nroot_dir: /opt/r\npki_dir: /etc/pki\ncachedir: /var/c\nlog_file: /var/log/x\n"},
    "root dir inside": {"master": "id: m1\nroot_dir: /opt/r\npki_dir: /opt/r/pki\nsock_dir: /opt/r/run\n"},
    "root dir relative values": {"master": "id: m1\nroot_dir: /opt/r\npki_dir: pki\ncachedir: c/d\nlog_file: logs/m\nautosign_file: as\n"},
    "relative without root": {"master": "id: m1\npki_dir: pki\n"},
    "root equal": {"master": "id: m1\nroot_dir: /opt/r\npki_dir: /opt/r\n"},
    "log uri": {"master": "id: m1\nroot_dir: /opt/r\nlog_file: udp://h:514/local0\nkey_logfile: file:///dev/log\n"},
    "log dir": {"master": "id: m1\nlog_dir: /opt/logs\n"},
    "log dir and file": {"master": "id: m1\nlog_dir: /opt/logs\nlog_file: a/b\n"},
    "log dir and absolute file": {"master": "id: m1\nlog_dir: /opt/logs\nlog_file: /x/b\n"},
    "sock longer": {"master": "id: m1\ncachedir: /c\nsock_dir: /run/salt/master\n"},
    "sock at limit": {"master": "id: m1\ncachedir: /cache\nsock_dir: /run/salt/maste\n"},
    "sock with root": {"master": "id: m1\nroot_dir: /opt/r\ncachedir: /c\nsock_dir: /run/salt/master\n"},
    "autosign": {"master": "id: m1\nroot_dir: /r\nautosign_file: /etc/as\nautoreject_file: /etc/ar\nautosign_grains_dir: /etc/ag\n"},
    "cluster paths": {"master": "id: m1\nroot_dir: /r\ncluster_id: c\ncluster_peers: [127.0.0.2]\ncluster_pki_dir: /shared/pki\n"},
    "cluster pki default": {"master": "id: m1\nroot_dir: /r\ncluster_id: c\ncluster_peers: [127.0.0.2]\npki_dir: /p\n"},
    "peers without id": {"master": "id: m1\ncluster_peers: [127.0.0.2]\ncluster_pki_dir: /x\n"},
    "old port name": {"master": "id: m1\ncluster_id: c\ncluster_peers: [a]\ncluster_port: 4999\n"},
    "both port names": {"master": "id: m1\ncluster_id: c\ncluster_peers: [a]\ncluster_port: 4999\ncluster_pool_port: 4998\n"},
    "roots": {"master": "id: m1\nfile_roots:\n  base: [/a, /b]\n  dev:\n    - /d\npillar_roots: {base: [/p]}\n"},
    "root envs without dirs": {"master": "id: m1\nfile_roots:\n  base:\n"},
    "backends": {"master": "id: m1\nfileserver_backend: [roots, git, minion]\n"},
    "single glob": {"master": "id: m1\nfile_ignore_glob: '*.pyc'\nfile_ignore_regex: '/\\.svn'\n"},
    "upper hash": {"master": "id: m1\nhash_type: SHA512\n"},
    "empty values": {"master": "id: m1\nnodegroups:\n"},
    "nodegroup list": {"master": "id: m1\nnodegroups:\n  - a: 'L@x'\n  - b: 'L@y'\n"},
    "default include": {"master": "id: m1\ntimeout: 7\n", "master.d/a.conf": "timeout: 8\n", "master.d/b.conf": "timeout: 9\n", "master.d/c.txt": "timeout: 1\n", "master.d/.d.conf": "timeout: 2\n"},
    "include order": {"master": "id: m1\ntimeout: 7\ninclude: extra.conf\n", "master.d/a.conf": "timeout: 8\n", "extra.conf": "timeout: 9\n"},
    "include list": {"master": "id: m1\ninclude: [two.conf, 'x*.conf']\n", "two.conf": "timeout: 2\n", "x1.conf": "timeout: 3\n", "x2.conf": "timeout: 4\n"},
    "include in include": {"master": "id: m1\n", "master.d/a.conf": "timeout: 8\npeer: {a: [x]}\ninclude: ../sub/*.conf\n", "sub/s.conf": "timeout: 5\npeer: {b: [y]}\n"},
    "deep merge": {"master": "id: m1\nnodegroups: {main: 'x'}\n", "master.d/a.conf": "nodegroups: {a: 'x', c: {d: [1, 2]}}\nfile_roots: {base: [/a]}\n", "master.d/b.conf": "nodegroups: {b: 'y', c: {d: [2, 3], e: 1}}\nfile_roots: {base: [/b, /a], dev: [/d]}\n"},
    "deep merge replaces": {"master": "id: m1\n", "master.d/a.conf": "peer: {a: [1], b: x, c: {d: 1}}\n", "master.d/b.conf": "peer: {a: y, b: [2], c: [3]}\n"},
    "broken include": {"master": "id: m1\ntimeout: 7\n", "master.d/a.conf": "timeout: [\n", "master.d/b.conf": "gather_job_timeout: 3\n"},
    "list include": {"master": "id: m1\ntimeout: 7\n", "master.d/a.conf": "- a\n", "master.d/b.conf": "gather_job_timeout: 3\n"},
    "other default include": {"master": "id: m1\ndefault_include: conf.d/*\n", "master.d/a.conf": "timeout: 8\n", "conf.d/a": "timeout: 9\n"},
    "negated include": {"master": "id: m1\ndefault_include: 'master.d/[!_]*.conf'\n", "master.d/b.conf": "timeout: 8\n", "master.d/_old.conf": "timeout: 9\n", "master.d/^old.conf": "interface: 10.0.0.9\n"},
    "circumflex include": {"master": "id: m1\ninclude: 'x/[^a].conf'\n", "x/^.conf": "timeout: 8\n", "x/a.conf": "interface: 10.0.0.9\n", "x/b.conf": "timeout: 9\n"},
    "backslash include": {"master": "id: m1\ninclude: 'x/\\*.conf'\n", "x/\\a.conf": "timeout: 8\n", "x/*.conf": "timeout: 9\n"},
    "open bracket include": {"master": "id: m1\ninclude: ['x/[a.conf', 'x/[b*']\n", "x/[a.conf": "timeout: 8\n", "x/[b.conf": "interface: 10.0.0.9\n", "x/a.conf": "timeout: 9\n"},
    "hidden folder include": {"master": "id: m1\ninclude: '*/x.conf'\n", "a/x.conf": "timeout: 8\n", ".b/x.conf": "timeout: 9\n", ".b/y.conf": "interface: 10.0.0.9\n"},
    "shown folder include": {"master": "id: m1\ninclude: ['.*/y.conf', '?/.z.conf']\n", ".b/y.conf": "interface: 10.0.0.9\n", "a/.z.conf": "timeout: 8\n"},
    "empty include": {"master": "id: m1\ninclude: []\n"},
    "merge keys": {"master": "id: m1\nx: &x {a: 1}\npeer: {<<: *x, b: 2}\n"},
}


def plain(v):
    if isinstance(v, dict) or hasattr(v, "items"):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, str) or not hasattr(v, "__iter__"):
        return v
    return [plain(x) for x in v]


rows = []
for name, files in CASES.items():
    with tempfile.TemporaryDirectory() as d:
        for path, text in files.items():
            full = os.path.join(d, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        o = salt.config.master_config(os.path.join(d, "master"))
        got = {n: plain(o.get(n)) for n in NAMES}
        if "id" not in files["master"]:
            got.pop("id")
        rows.append({"name": name, "files": files, "want": got})
json.dump(rows, sys.stdout, indent=1)
print()
