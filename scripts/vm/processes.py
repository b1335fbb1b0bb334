"""Child processes that do not outlive this one, however it ends."""
import ctypes
import os
import signal
import subprocess
import threading

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def start(command, processor=None, **options):
    """Popen in a session of its own (Ctrl-C is for us alone), killed by the kernel when this process ends. With
    `processor` it and its children run on that one alone."""
    parent = os.getpid()

    def tie():
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if processor is not None:
            os.sched_setaffinity(0, {processor})

    # The signal comes when the starting thread ends, so this must be the main one.
    assert threading.current_thread() is threading.main_thread()
    return subprocess.Popen(command, preexec_fn=tie, start_new_session=True, **options)


def run_group(command, log, **options):
    """Runs a command that starts others (make); returns its exit code. All of them end with this process.

    A watcher in their process group holds a pipe from us; when the pipe closes it kills the group.
    """
    watcher = '{ read -r _ <&9; kill -KILL 0; } & watcher=$!; "$@" 9<&-; code=$?; kill -KILL "$watcher"; exit "$code"'
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(["/bin/sh", "-c", f"exec 9<&{reader}; {watcher}", "sh", *command], pass_fds=[reader],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True, **options)
        os.close(reader)
        reader = None
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    finally:
        os.close(writer)
        if reader is not None:
            os.close(reader)
