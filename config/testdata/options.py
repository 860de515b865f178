#!/usr/bin/env python3
"""Makes ../options.tsv: name, types and default of each option a Salt master knows.

Run with the Python of an environment that has Salt 3008.3:
    venv/bin/python options.py > ../options.tsv
"""
import json

import salt.config

# Read by Salt's code though not in its tables.
UNLISTED = {
    "auth_dirs": "list", "engines_dirs": "list", "pillar_dirs": "list", "sdb_dirs": "list", "top_dirs": "list", "wheel_dirs": "list",
    "append_domain": "str", "api_logfile": "str", "api_pidfile": "str", "autoreject_file": "str", "autosign_file": "str",
    "autosign_grains_dir": "str", "cluster_election_max": "int", "cluster_election_min": "int", "cluster_join_timeout": "float",
    "cluster_port": "int", "color": "bool", "color_theme": "str", "environment": "str", "include": "str|list", "log_dir": "str",
    "master_id": "str", "output": "str", "output_file": "str", "output_indent": "any", "peer_run": "dict", "presence_events": "bool",
    "rest_cherrypy": "dict", "rest_tornado": "dict", "sharedsecret": "str", "strip_colors": "bool", "token_dir": "str", "token_file": "str",
    "top_file_merging_strategy": "str", "pillar_source_merging_strategy": "str", "ext_pillar_first": "bool", "beacons": "list|dict",
    "mine_functions": "dict", "mine_get": "dict", "grains_cache": "bool", "roster": "str", "roster_file": "str", "rosters": "list", "roster_defaults": "dict",
    "ssh_minion_opts": "dict", "ssh_wipe": "bool", "syndic_user": "str", "syndic_master_port": "int", "nodegroup_max": "int", "tcp_keepalive": "bool",
    "logstash_udp_handler": "dict", "logstash_zmq_handler": "dict", "sentry_handler": "dict", "fluent_handler": "dict", "raas": "dict",
    "autoload_dynamic_modules": "bool", "pillar_env": "str", "state_output": "str", "state_tabular": "any", "state_output_pct": "bool", "no_parse": "list",
    "fileserver_events": "bool", "force_color": "bool", "no_color": "bool", "state_output_exclude": "any", "state_output_terse": "any",
}
# Taken by Salt's code in more forms than its tables say.
WIDER = {"engines": "list|dict"}
DROP = {"user", "ssh_config_file", "conf_file"}


def names(t):
    if t is None:
        return "any"
    if isinstance(t, tuple):
        return "|".join(sorted({names(x) for x in t}))
    return {"NoneType": "null", "tuple": "list"}.get(t.__name__, t.__name__)


def plain(v):
    if isinstance(v, dict) or hasattr(v, "items"):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)) or type(v).__name__ == "ImmutableList":
        return [plain(x) for x in v]
    return v


rows = {k: (t, "") for k, t in UNLISTED.items()}
for k, t in salt.config.VALID_OPTS.items():
    rows[k] = (names(t), "")
for k, v in salt.config.DEFAULT_MASTER_OPTS.items():
    t = names(salt.config.VALID_OPTS.get(k))
    if v is None and t != "any" and "null" not in t:
        t += "|null"
    rows[k] = (t, "" if k in DROP else json.dumps(plain(v)))
for k, t in WIDER.items():
    rows[k] = (t, rows[k][1])
for k, (t, d) in sorted(rows.items()):
    print(k, t, d, sep="\t")
