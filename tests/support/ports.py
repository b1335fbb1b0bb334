"""Ports for programs that have to be told one before they listen."""
import socket

_HELD = []


def held_port():
    """A TCP port that is this process's until it ends: bound, so that the kernel gives it to nobody, but not listened
    on. A program that is told its number can listen there, as servers set SO_REUSEADDR; until one does, nobody answers.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    _HELD.append(held)
    return held.getsockname()[1]
