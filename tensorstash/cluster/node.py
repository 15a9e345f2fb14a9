"""The number of this node among all nodes of a job, from the variables of torchrun, Ray Train and Lightning."""

from collections.abc import Mapping

from tensorstash.common.checks import at_least

_MOST_NODES = 1 << 16
_NODE = ("GROUP_RANK", "NODE_RANK")  # the first is set by torchrun, the second by Ray Train and Lightning


def node_of(node: int | None, nodes: int | None, environment: Mapping[str, str]) -> tuple[int, int, str]:
    """The number of this process's node, how many nodes there are, and what says so, for messages.

    That are the arguments, else what torchrun or Ray Train set, else it is the only node.
    """
    if (node is None) != (nodes is None):
        raise ValueError(f"node and nodes must be given together, got {node!r} and {nodes!r}.")
    name = next((name for name in _NODE if name in environment), None)
    if node is not None:
        number, count = at_least(0, node, "node"), at_least(1, nodes, "nodes", below=_MOST_NODES)
        origin = "from the arguments"
    elif name is None or not {"WORLD_SIZE", "LOCAL_WORLD_SIZE"} <= environment.keys():
        return 0, 1, "one node: neither arguments nor the environment name more"
    else:
        names = name, "WORLD_SIZE", "LOCAL_WORLD_SIZE"
        if not all(environment[each].isdecimal() for each in names):
            raise ValueError(f"{names} must be numbers, got {[environment[n] for n in names]} in the environment.")
        number, world, local = (int(environment[each]) for each in names)
        if local < 1 or world % local:
            raise ValueError(
                f"All nodes must have equally many ranks, got WORLD_SIZE={world} and LOCAL_WORLD_SIZE={local}. Start "
                "as many on every node, or give node= and nodes=."
            )
        count, origin = world // local, f"from {name}, WORLD_SIZE and LOCAL_WORLD_SIZE"
    if number >= count:
        raise ValueError(f"node must lie in [0, {count}), got {number} ({origin}). Count nodes from 0.")
    return number, count, origin
