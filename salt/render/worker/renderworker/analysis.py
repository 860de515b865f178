"""Which keys of grains, pillar and opts a template can read, from its syntax tree.

Minions may share a render only if every use has one of a few plain forms with a
constant key. Any other use counts as reading all of it.
"""

from jinja2 import nodes

ALL = "*"
ROOTS = ("grains", "pillar", "opts")
WHOLE = dict.fromkeys(ROOTS, ALL)
_METHODS = frozenset(dir(dict))
_LOOKUPS = {"grains.get": "grains", "pillar.get": "pillar"}


class Reads:
    """Maps each root to a set of keys, or to ALL."""

    def __init__(self):
        self.keys = {}

    def add(self, other):
        for root, keys in other.items():
            if keys == ALL or self.keys.get(root) == ALL:
                self.keys[root] = ALL
            else:
                self.keys[root] = self.keys.get(root, frozenset()) | keys

    def export(self):
        return {root: keys if keys == ALL else sorted(keys) for root, keys in self.keys.items()}


def reads(tree):
    found = Reads()
    _walk(tree, found)
    return found.keys


def _walk(node, found):
    if _plain(node, found):
        return
    if isinstance(node, nodes.Name):
        if node.name in ROOTS:
            found.add({node.name: ALL})
        elif node.name in ("salt", "ifelse", "show_full_context", "self"):
            found.add(WHOLE)
    for child in node.iter_child_nodes():
        _walk(child, found)


def _plain(node, found):
    """Record a use with a constant key, and the uses in its other arguments."""
    if isinstance(node, (nodes.Getattr, nodes.Getitem)):
        root, key = _root(node.node), _key(node)
        if root and key is not None and key not in _METHODS:
            found.add({root: frozenset([key])})
            return True
    elif isinstance(node, nodes.Compare) and len(node.ops) == 1 and node.ops[0].op in ("in", "notin"):
        root, key = _root(node.ops[0].expr), _text(node.expr)
        if root and key is not None:
            found.add({root: frozenset([key])})
            return True
    elif isinstance(node, nodes.Call) and node.args and node.dyn_args is None and node.dyn_kwargs is None:
        key = _text(node.args[0])
        if key is None:
            return False
        called = node.node
        if isinstance(called, nodes.Getattr) and called.attr == "get" and _root(called.node):
            found.add({_root(called.node): frozenset([key])})
        elif not node.kwargs and len(node.args) <= 2 and _function(called) in _LOOKUPS:
            # The key may be a path, or a name with colons in it.
            found.add({_LOOKUPS[_function(called)]: frozenset([key, key.split(":", 1)[0]])})
        else:
            return False
        for other in node.args[1:] + [k.value for k in node.kwargs]:
            _walk(other, found)
        return True
    return False


def _root(node):
    return node.name if isinstance(node, nodes.Name) and node.ctx == "load" and node.name in ROOTS else None


def _text(node):
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else None


def _key(node):
    return node.attr if isinstance(node, nodes.Getattr) else _text(node.arg)


def _function(node):
    """mod.fun for salt['mod.fun'] and salt.mod.fun, else None."""
    if isinstance(node, nodes.Getitem) and _is_salt(node.node):
        return _text(node.arg)
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Getattr) and _is_salt(node.node.node):
        return f"{node.node.attr}.{node.attr}"
    return None


def _is_salt(node):
    return isinstance(node, nodes.Name) and node.name == "salt"
