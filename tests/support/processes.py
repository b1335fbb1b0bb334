"""Child processes of tests that do not outlive them, however they end: ctest kills a test that takes too long."""
import ctypes
import os
import signal
import subprocess

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def tied(number=signal.SIGKILL):
    """A preexec_fn: the kernel sends the child this signal when the thread that started it, the main one, ends."""
    parent = os.getpid()

    def tie():
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return tie


def end(process, patience=10):
    """SIGTERM, and SIGKILL for what does not listen."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(patience)
