def found(name):
    return {"name": name, "result": True, "changes": {}, "comment": "in states_dirs"}
