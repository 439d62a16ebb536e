"""The syntax of prompt templates: lists the permitted elements and checks a syntax tree."""

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

NODES = 10_000
"""Maximum number of elements in a template."""
DEPTH = 50
"""Maximum nesting of elements."""
LOOPS = 5
"""Maximum nesting of loops."""
_NODE_WORK = 40
"""Units of work for one element, each time a loop reaches it."""

TESTS = frozenset({"defined", "undefined", "none", "true", "false", "string", "number"})
"""Words allowed after `is`. `odd` is excluded because it formats text: `%999999999d` would produce
that many characters.
"""
LOOP_FIELDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})

# A template cannot write these names, since they contain a space.
EACH, WEIGHED = "each item", "weighed operand"
_TARGET = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SPECIAL = frozenset({"loop", "self", "super", "caller", "varargs", "kwargs"})
_WORDS: Mapping[type[nodes.Node], str] = {
    nodes.Add: "`+`",
    nodes.Sub: "`-`",
    nodes.Mul: "`*`",
    nodes.Div: "`/`",
    nodes.FloorDiv: "`//`",
    nodes.Mod: "`%`",
    nodes.Pow: "`**`",
    nodes.Concat: "`~`",
    nodes.Neg: "`-`",
    nodes.Pos: "`+`",
    nodes.Call: "a call",
    nodes.Slice: "a slice",
    nodes.Dict: "a mapping",
    nodes.List: "a list outside `in`",
    nodes.Tuple: "a tuple outside `in`",
    nodes.Assign: "`set`",
    nodes.AssignBlock: "`set`",
    nodes.CallBlock: "`call`",
    nodes.FilterBlock: "`filter`",
    nodes.FromImport: "`from`",
    nodes.ScopedEvalContextModifier: "`autoescape`",
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Context of a node."""

    bound: frozenset[str] = frozenset()
    """Names that stand for a loop's items."""
    depth: int = 0
    """Number of nodes above it."""
    loops: int = 0
    """Number of loops above it."""

    def below(self, depth: int = 1) -> "Scope":
        """Return the context of a child node."""
        return Scope(self.bound, self.depth + depth, self.loops)

    def within_loop(self, *names: str) -> "Scope":
        """Return the context inside a loop that gives its items these names."""
        return Scope(self.bound.union(names), self.depth + 1, self.loops + 1)


_Below = Iterator[tuple[nodes.Node, Scope]]
"""Nodes still to be checked; each is checked before the next one is requested."""


class Checker:
    """Walks a syntax tree, rejects forbidden elements and inserts filters that limit its work."""

    def __init__(self, environment: Environment, filters: Set[str]) -> None:
        self._environment, self._allowed = environment, filters
        self._nodes = 0
        self.slots = set[str]()

    def check(self, node: nodes.Node, scope: Scope = Scope()) -> None:
        """Check a node and its descendants; raise TemplateSyntaxError for a forbidden one."""
        self._nodes += 1
        if scope.depth > DEPTH:
            raise TemplateSyntaxError("it is nested too deeply", node.lineno)
        if self._nodes > NODES:
            raise TemplateSyntaxError(f"it has more than {NODES:,} elements", node.lineno)
        rule = _RULES.get(type(node))
        _require(rule is not None, _name_of(node), node)
        if rule is not None:
            for below, its_scope in rule(self, node, scope):
                self.check(below, its_scope)

    def all(self, node: nodes.Node, scope: Scope) -> _Below:
        """Allow the node if all its children are allowed."""
        return ((below, scope.below()) for below in node.iter_child_nodes())

    def name(self, node: nodes.Name, scope: Scope) -> _Below:
        """Allow the name of a slot or of a loop's item."""
        _require(node.name != "loop" or "loop" not in scope.bound, "`loop` without a field", node)
        self.slots |= {node.name} - scope.bound
        return iter(())

    def constant(self, node: nodes.Const, _: Scope) -> _Below:
        """Allow a text, a truth value, None, or a number of ordinary size."""
        value = node.value
        usual = not isinstance(value, int | float) or abs(value) < 1e15
        _require(usual, "so large a number", node)
        return iter(())

    def field(self, node: nodes.Getattr, scope: Scope) -> _Below:
        """Allow a field of a slot or of `loop`."""
        name = node.attr
        if "loop" in scope.bound and node.node == nodes.Name("loop", "load"):
            _require(name in LOOP_FIELDS, f"`loop.{name}`", node)
            return
        _require(not name.startswith("_"), f"the field `{name}`", node)
        yield _path(node.node), scope.below()

    def item(self, node: nodes.Getitem, scope: Scope) -> _Below:
        """Allow an item of a slot, selected by a constant or by another slot."""
        yield _path(node.node), scope.below()
        key = node.arg.node if isinstance(node.arg, nodes.Neg) else node.arg
        if isinstance(key, nodes.Const):
            _require(not str(key.value).startswith("_"), f"the key `{key.value}`", node)
            yield key, scope.below()
        else:
            yield _path(node.arg), scope.below()

    def comparison(self, node: nodes.Compare, scope: Scope) -> _Below:
        """Allow a comparison of values, or `in` a list of constants; make it cost work."""
        yield node.expr, scope.below()
        # Insert the filter after the check, which would reject its name.
        node.expr = self._filter(WEIGHED, node.expr)
        for operand in node.ops:
            listed = operand.op in ("in", "notin") and isinstance(operand.expr, _LISTS)
            for below in operand.expr.iter_child_nodes() if listed else [operand.expr]:
                if listed:
                    _require(
                        isinstance(below, nodes.Const), "a list of anything but constants", node
                    )
                yield below, scope.below()
            operand.expr = self._filter(WEIGHED, operand.expr)

    def filter(self, node: nodes.Filter, scope: Scope) -> _Below:
        """Allow the listed filters."""
        _require(node.name in self._allowed, f"the filter `{node.name}`", node)
        return _arguments(node, scope)

    def test(self, node: nodes.Test, scope: Scope) -> _Below:
        """Allow the listed tests."""
        _require(node.name in TESTS, f"the test `{node.name}`", node)
        return _arguments(node, scope)

    def condition(self, node: nodes.If, scope: Scope) -> _Below:
        """Allow a condition; each `elif` is one level deeper, as in Jinja's generated code."""
        yield from ((below, scope.below()) for below in [node.test, *node.body, *node.else_])
        yield from ((branch, scope.below(i)) for i, branch in enumerate(node.elif_, 1))

    def loop(self, node: nodes.For, scope: Scope) -> _Below:
        """Allow a loop over the items of a slot; make each iteration cost work."""
        _require(scope.loops < LOOPS, f"more than {LOOPS} loops inside each other", node)
        _require(not node.recursive, "`recursive`", node)
        yield _path(node.iter), scope.below()
        names, before = list(_targets(node.target)), self._nodes
        if node.test is not None:
            yield node.test, scope.within_loop(*names)
        yield from ((below, scope.within_loop(*names, "loop")) for below in node.body)
        # The caller checks each yielded node before it continues here, so the difference is the
        # size of the loop's body.
        cost = (1 + self._nodes - before) * _NODE_WORK
        yield from ((below, scope.below()) for below in node.else_)
        # Insert the filter after the check, which would reject its name.
        node.iter = self._filter(EACH, node.iter, nodes.Const(cost, lineno=node.lineno))

    def _filter(self, name: str, value: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
        made = nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)
        made.set_environment(self._environment)
        return made


_LISTS = (nodes.List, nodes.Tuple)
_RULES: Mapping[type[nodes.Node], Callable[[Checker, Any, Scope], _Below]] = {
    nodes.Template: Checker.all,
    nodes.Output: Checker.all,
    nodes.TemplateData: Checker.all,
    nodes.Scope: Checker.all,  # its content is rejected with a line number
    nodes.If: Checker.condition,
    nodes.For: Checker.loop,
    nodes.Name: Checker.name,
    nodes.Const: Checker.constant,
    nodes.Getattr: Checker.field,
    nodes.Getitem: Checker.item,
    nodes.Filter: Checker.filter,
    nodes.Test: Checker.test,
    nodes.Compare: Checker.comparison,
    nodes.CondExpr: Checker.all,
    nodes.And: Checker.all,
    nodes.Or: Checker.all,
    nodes.Not: Checker.all,
}
"""All elements that a template may contain, with the method that checks each."""


def _require(allowed: bool, what: str, node: nodes.Node) -> None:
    if not allowed:
        raise TemplateSyntaxError(f"{what} is not allowed in a prompt", node.lineno)


def _name_of(node: nodes.Node) -> str:
    return _WORDS.get(type(node)) or f"`{type(node).__name__.lower()}`"


def _path(node: nodes.Node) -> nodes.Node:
    """Return the node if it is a name, or a field or item of a name; raise otherwise."""
    start = node
    while isinstance(start, nodes.Getattr | nodes.Getitem):
        start = start.node
    if not isinstance(start, nodes.Name):
        _require(type(start) in _RULES, _name_of(start), node)
        _require(False, "a field, an item or a loop of anything but a slot", node)
    return node


def _targets(target: nodes.Node) -> Iterator[str]:
    """Yield the names that a loop gives to its items."""
    if isinstance(target, nodes.Tuple):
        for item in target.items:
            yield from _targets(item)
    elif isinstance(target, nodes.Name):
        usual = _TARGET.fullmatch(target.name) and target.name not in _SPECIAL
        _require(bool(usual), f"the name `{target.name}` for an item", target)
        yield target.name


def _arguments(node: nodes.Filter | nodes.Test, scope: Scope) -> _Below:
    """Yield the value and the arguments of a filter or a test."""
    _require(not (node.dyn_args or node.dyn_kwargs), "`*`", node)
    named = [pair.value for pair in node.kwargs]
    return ((below, scope.below()) for below in [node.node, *node.args, *named] if below)
