"""A control group of the memory of one process: what it may have, and whether the kernel has killed it for more."""
import os
import re

import namespaces  # pylint: disable=import-error  # harness knows its folder.

ROOT = "/sys/fs/cgroup"


def first_version():
    """Whether the memory's controller is one of the first version of control groups; None: there is none."""
    if os.path.exists(os.path.join(ROOT, "memory", "memory.limit_in_bytes")):
        return True
    try:
        with open(os.path.join(ROOT, "cgroup.subtree_control"), encoding="ascii") as file:
            return False if "memory" in file.read().split() else None
    except OSError:
        return None


def sweep(folder):
    """Removes what processes left that are no more."""
    for name in os.listdir(folder):
        owner = re.fullmatch(r"heddle-(\d{7})-\w", name)
        if owner and not os.path.exists(f"/proc/{int(owner[1])}"):
            try:
                os.rmdir(os.path.join(folder, name))
            except OSError:
                pass  # Somebody is in it.


class MemoryGroup:
    """Of one worker. OSError where this process may make none. It is removed when nobody is in it."""

    def __init__(self, worker):
        self.first = first_version()
        if self.first is None:
            raise OSError("no control groups of memory here")
        folder = os.path.join(ROOT, "memory") if self.first else ROOT
        sweep(folder)
        self.path = os.path.join(folder, f"heddle-{namespaces.TAG}-{worker}")
        os.mkdir(self.path)

    def file(self, first, second):
        return os.path.join(self.path, first if self.first else second)

    def enter(self):
        """Called in the child before it runs its program."""
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def used(self):
        with open(self.file("memory.usage_in_bytes", "memory.current"), encoding="ascii") as file:
            return int(file.read())

    def limit(self, most):
        """False when the kernel cannot take so much back. None: without a limit."""
        text = str(most) if most is not None else "-1" if self.first else "max"
        try:
            with open(self.file("memory.limit_in_bytes", "memory.max"), "w", encoding="ascii") as file:
                file.write(text)
        except OSError:
            return False
        return True

    def kills(self):
        with open(self.file("memory.oom_control", "memory.events"), encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))

    def remove(self):
        try:
            os.rmdir(self.path)
        except OSError:
            return False
        return True
