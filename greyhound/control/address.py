"""Which address the master listens on and the other nodes call."""

import socket

from greyhound.control.arguments import NodeArguments

LOOPBACK = "127.0.0.1"


def numeric(host: str) -> str:
    """The first address of a name, IPv4 preferred; OSError if it has none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def head_address(arguments: NodeArguments) -> str:
    """`--head-address`, else loopback for a step of one node, else NodeAddr of the step's first node. OSError."""
    if arguments.head_address:
        return numeric(arguments.head_address)
    if arguments.node_count == 1:
        return LOOPBACK
    from greyhound.slurm.client import CommandClient, SlurmError
    from greyhound.slurm.nodelist import NodeListError, expand

    try:
        return numeric(CommandClient().node_address(expand(arguments.node_list)[0]))
    except (SlurmError, NodeListError, IndexError) as error:
        raise OSError(f"NodeAddr of the first of {arguments.node_list!r} is not known: {error}") from None


def node_name(arguments: NodeArguments) -> str:
    """This node's name in the step's list, `node INDEX` where the list doesn't say."""
    if "[" not in arguments.node_list:
        names = arguments.node_list.split(",")
    else:
        from greyhound.slurm.nodelist import NodeListError, expand

        try:
            names = expand(arguments.node_list)
        except NodeListError:
            names = []
    index = arguments.node_index
    return names[index] if 0 <= index < len(names) else f"node {index}"
