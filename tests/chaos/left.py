"""What a run may not leave behind: processes, ports, shared memory, files, namespaces, links and control groups."""
import os
import socket

import namespaces  # pylint: disable=import-error  # harness knows its folder.
from memory_groups import ROOT
from world import MARK

LISTENS = "0A"  # A state of /proc/net/tcp.


def segments():
    return {name for name in os.listdir("/dev/shm") if "heddle" in name}


def orphans():
    """Processes of this run, whoever started them."""
    mark = f"{MARK}={namespaces.TAG}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass  # It has ended.
    return found


def listening(place):
    """Ports in a worker's namespace at which somebody listens."""
    ports = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in namespaces.command(*namespaces.within(place), "cat", table).splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS:
                ports.append(int(words[1].rsplit(":", 1)[1], 16))
    return ports


def check_processes(world, before):
    """After the end of all, while the namespaces and the disks are still there. `before`: segments()."""
    for process in world.processes():
        assert process.poll() is not None
    world.service.close()
    assert not orphans(), f"processes: {orphans()}"
    left = segments() - before
    assert not left, f"segments of shared memory: {left}"
    for address in world.service.addresses():
        host, port = address.rsplit(":", 1)
        with socket.socket() as connection:
            assert connection.connect_ex((host, int(port))) != 0, f"somebody listens at {address}"
    for place in world.network.places:
        assert not listening(place), f"ports of worker {place}: {listening(place)}"
    assert not os.listdir(world.temporary), f"temporary files: {os.listdir(world.temporary)}"
    # A save that was given up goes with the next generation (docs/reference/checkpoint-format.md).
    partial = [name for _, folders, files in os.walk(world.run.folder) for name in [*folders, *files]
               if ("tmp" in name or "partial" in name) and not name.startswith(".tmp-step-")]
    assert not partial, partial
    for name, group in world.groups.items():
        assert group.remove(), f"the control group of {name} is in use"


def check_machine(folder):
    """After the world's end."""
    spaces = namespaces.command("ip", "netns", "list")
    assert f"heddle-{namespaces.TAG}-" not in spaces, f"namespaces: {spaces}"
    links = namespaces.command("ip", "link", "show")
    assert namespaces.TAG not in links, f"links: {links}"
    with open("/proc/mounts", encoding="utf-8") as mounts:
        assert folder not in mounts.read(), "file systems are still mounted"
    groups = [name for _, names, _ in os.walk(ROOT) for name in names if name.startswith(f"heddle-{namespaces.TAG}-")]
    assert not groups, f"control groups: {groups}"
