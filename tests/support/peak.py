"""Runs a command for at most so many seconds and writes its peak memory in bytes to a file descriptor.

Usage: peak.py DESCRIPTOR SECONDS COMMAND… The exit code is the command's, or 128 and the number of the signal that
ended it.
A process's peak begins with that of whoever it was forked from: a large test measures through this small one.
"""
import os
import signal
import sys


def main():
    channel, seconds, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    child = os.fork()
    if child == 0:
        os.close(channel)
        signal.alarm(seconds)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    os.write(channel, str(usage.ru_maxrss * 1024).encode())
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


main()
