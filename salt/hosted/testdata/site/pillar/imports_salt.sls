#!py
from salt.utils import data


def run():
    return {"py": {"looked": data.traverse_dict({"a": {"b": __grains__["id"]}}, "a:b"), "fact": __salt__["facts.about"]()["id"]}}
