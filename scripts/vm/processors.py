"""Which processor a guest of User-Mode Linux runs on.

A guest's kernel and programs are processes that alternate at each system call and page fault. On one processor a switch
costs a few microseconds. If the scheduler spreads them over idle processors, each must be woken, which is slow, in
a virtual machine especially. So each guest has one processor, the least used of those that this process may use.
"""
import fcntl
import itertools
import os

from vm import kernels


class Seat:
    """A processor that is taken until `release` or the end of the process; a lock shows that to other runs."""

    def __init__(self):
        folder = kernels.cache() / "processors"
        folder.mkdir(exist_ok=True)
        for row in itertools.count():
            for processor in sorted(os.sched_getaffinity(0)):
                lock = os.open(folder / f"{processor}.{row}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                self.processor, self.lock = processor, lock
                return

    def release(self):
        os.close(self.lock)
