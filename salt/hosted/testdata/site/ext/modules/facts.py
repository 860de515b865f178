"""A site's execution module."""

__func_alias__ = {"list_": "list"}


def about():
    return {
        "id": __grains__["id"],
        "os": __salt__["grains.get"]("os"),
        "pillar": __salt__["pillar.get"]("nothing", "no pillar yet"),
        "master": __opts__["id"],
        "option": __salt__["config.get"]("site_option"),
    }


def list_(*args, **kwargs):
    return [list(args), {k: v for k, v in kwargs.items() if not k.startswith("__")}]


def util(n):
    return __utils__["sums.double"](n)


def fail(text):
    raise ValueError(text)


def refuse(text):
    from salt.exceptions import CommandExecutionError

    raise CommandExecutionError(text)


def again():
    __context__["facts.n"] = __context__.get("facts.n", 0) + 1
    return __context__["facts.n"]
