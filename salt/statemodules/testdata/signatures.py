"""Prints the parameters of Salt's state functions whose names are the arguments, a line of JSON for each."""
import importlib
import inspect
import json
import sys

for name in sys.argv[1:]:
    module, fun = name.split(".")
    module = {"salt": "saltmod"}.get(module, module)
    params, rest = [], False
    for p in inspect.signature(getattr(importlib.import_module("salt.states." + module), fun)).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            rest = True
        elif p.default is p.empty:
            params.append([p.name])
        else:
            params.append([p.name, list(p.default) if isinstance(p.default, tuple) else p.default])
    print(json.dumps([name, params, rest]))
