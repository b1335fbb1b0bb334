"""When this machine stood still: a hypervisor gives a virtual machine's processors to others for a while, and nothing
that runs there can tell but by its clock. A bound on time counts what is left.

On each processor a process of the highest urgency, which no load of ours delays, sleeps for a moment again and again.
What it oversleeps is a pause. Without the right to such urgency there are no pauses: a bound is then as it stands.
"""
import ctypes
import mmap
import os
import time

import processes

MOMENT = 0.002
# An interrupt or the kernel's own work may take as long; summed up it is no pause.
SHORTEST = 0.003
# Pauses kept of each processor; earlier ones are forgotten.
KEPT = 4096


class _Record(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint64), ("begin", ctypes.c_double * KEPT), ("end", ctypes.c_double * KEPT)]


class Pauses:
    """Watches from its making to the end of the process that made it."""

    def __init__(self):
        self._records = [self._watch(processor) for processor in sorted(os.sched_getaffinity(0))]

    def within(self, begin, end):
        """Seconds of this interval of time.monotonic() for which the processor that did so longest stood still."""
        return max((self._of(record, begin, end) for record in self._records), default=0.0)

    @staticmethod
    def _of(record, begin, end):
        count = record.count
        slots = [i % KEPT for i in range(max(0, count - KEPT), count)]
        return sum(max(0.0, min(record.end[i], end) - max(record.begin[i], begin)) for i in slots)

    @staticmethod
    def _watch(processor):
        memory = mmap.mmap(-1, ctypes.sizeof(_Record))
        record = _Record.from_buffer(memory)
        tie = processes.tied()
        if os.fork() == 0:
            try:
                tie()
                os.sched_setaffinity(0, {processor})
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO) - 1))
                while True:
                    before = time.monotonic()
                    time.sleep(MOMENT)
                    after = time.monotonic()
                    if after - before > MOMENT + SHORTEST:
                        slot = record.count % KEPT
                        record.begin[slot], record.end[slot] = before, after
                        record.count += 1
            except OSError:
                pass
            finally:
                os._exit(0)
        return record
