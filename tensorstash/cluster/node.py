"""Which node this process is on, and how many there are."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tensorstash.common.checks import at_least

_NODE = ("GROUP_RANK", "NODE_RANK")  # of torchrun, and of Ray Train and Lightning


@dataclass(frozen=True, slots=True)
class Node:
    """A node among others."""

    number: int
    nodes: int
    origin: str


def node_of(node: int | None, nodes: int | None, environment: Mapping[str, str] = os.environ) -> Node:
    """The node of this process: as given, else as torchrun or Ray Train tell it, else the only one."""
    if (node is None) != (nodes is None):
        raise ValueError(f"node= and nodes= are given together; got node={node!r} and nodes={nodes!r}.")
    if node is not None:
        count = at_least(1, nodes, "nodes")
        return _checked(Node(at_least(0, node, "node"), count, "from the arguments"))
    name = next((name for name in _NODE if name in environment), None)
    if name is None or not {"WORLD_SIZE", "LOCAL_WORLD_SIZE"} <= environment.keys():
        return Node(0, 1, "one node: neither arguments nor the environment name more")
    number, world, local = (_integer(environment, one) for one in (name, "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if local < 1 or world % local:
        raise ValueError(
            f"Nodes have equally many ranks each; WORLD_SIZE is {world} and LOCAL_WORLD_SIZE {local}. Start as many on "
            "every node, or give node= and nodes=."
        )
    return _checked(Node(number, world // local, f"from {name}, WORLD_SIZE and LOCAL_WORLD_SIZE"))


def _integer(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError as error:
        raise ValueError(f"{name} is a number; the environment has {environment[name]!r}. Correct it.") from error


def _checked(node: Node) -> Node:
    if not node.number < node.nodes:
        raise ValueError(
            f"The number of a node lies in [0, {node.nodes}); got {node.number} ({node.origin}). Count nodes from 0 on."
        )
    return node
