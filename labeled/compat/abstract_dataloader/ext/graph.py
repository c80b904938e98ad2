"""The old transforms as a graph: nodes that run once what they need is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Node:
    """A transform, which of the data it takes by which argument, and what it adds to them."""

    transform: Callable[..., Any]
    output: str | Sequence[str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)

    def apply(self, data: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Add what the transform makes to the data, in place."""
        given = {argument: data[key] for argument, key in self.inputs.items()}
        given |= {arg: data[key] for arg, key in self.optional.items() if key in data}
        made = self.transform(**given)
        if isinstance(self.output, str):
            data[self.output] = made
            return data
        if not isinstance(made, Sequence):
            raise TypeError(
                f"Node {name!r} output is expected to be a sequence: it is to make {self.output}, "
                f"but made {type(made).__name__}"
            )
        if len(made) != len(self.output):
            raise ValueError(
                f"Node {name!r} output length mismatch: it is to make {self.output}, but made "
                f"{len(made)} values"
            )
        data.update(zip(self.output, made, strict=True))
        return data


class Transform:
    """Runs every node whose inputs are there, in the order of declaration, until none is left.

    The mapping that is given is changed, as it always was. With `outputs` and without
    `keep_all`, what no node requires and nobody asked for is forgotten after each node.
    """

    def __init__(
        self,
        outputs: Mapping[str, str] | None = None,
        keep_all: bool = False,
        **nodes: Node | dict[str, Any],
    ) -> None:
        self.outputs, self.keep_all = outputs, keep_all
        self.nodes = {
            k: Node(**node) if isinstance(node, dict) else node for k, node in nodes.items()
        }

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        waiting = dict(self.nodes)
        while waiting:
            ready = [k for k, node in waiting.items() if set(node.inputs.values()) <= set(data)]
            if not ready:
                raise ValueError(
                    f"There are {len(waiting)} nodes remaining, whose inputs are missing: "
                    f"{self._missing(waiting, data)}"
                )
            for name in ready:
                data = waiting.pop(name).apply(data, name)
                data = self._left(data)
        if self.outputs is None:
            return data
        asked = {name: data[key] for name, key in self.outputs.items()}
        if not self.keep_all:
            return asked
        data.update(asked)
        return data

    def _left(self, data: dict[str, Any]) -> dict[str, Any]:
        if self.outputs is None or self.keep_all:
            return data
        wanted = set(self.outputs.values())
        for node in self.nodes.values():
            wanted |= set(node.inputs.values())
        return {key: value for key, value in data.items() if key in wanted}

    def _missing(
        self, waiting: Mapping[str, Node], data: Mapping[str, Any]
    ) -> dict[str, list[str]]:
        return {
            name: [key for key in node.inputs.values() if key not in data]
            for name, node in waiting.items()
        }

    def children(self) -> Iterable[Any]:
        return [node.transform for node in self.nodes.values()]
