"""Which processor a guest of User-Mode Linux runs on.

Its kernel and its programs are processes that take turns, at each system call and page fault. On one processor a turn
costs a few microseconds; where the scheduler spreads them over idle ones each has to be woken, which a virtual machine
in particular pays dearly. So each guest has one processor, the least taken of those that this process may use.
"""
import fcntl
import itertools
import os

from vm import kernels


class Seat:
    """A processor, taken until `release` or the end of the process, which other runs see by a lock."""

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
