"""A process that keeps the state in memory and answers commands, a line each way."""
import json
import os
import select
import subprocess
import time

from support import heddle
from support.exchange import with_priority
from support.heddle import Failure

TIMEOUT = 600


class Program:
    def __init__(self, name, command, log):
        self.name, self.log = name, log
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(with_priority(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=errors, start_new_session=True)

    def ask(self, *words):
        """The answer. Failure when the command failed, or the process has ended or does not answer."""
        try:
            self.process.stdin.write((" ".join(words) + "\n").encode())
            self.process.stdin.flush()
        except OSError:
            pass  # It has ended: reading says why.
        answer = json.loads(self.read_line(words[0]))
        if "error" in answer:
            raise Failure(f"{' '.join(words[:2])}: {answer['error']}")
        return answer

    def read_line(self, what):
        line, deadline = b"", time.monotonic() + TIMEOUT
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                self.stop()
                raise Failure(f"{self.name}: {what}: no answer within {TIMEOUT} s")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                with open(self.log, encoding="utf-8", errors="replace") as errors:
                    raise Failure(f"{self.name}: {heddle.last_line(errors.read())}")
            line += part
        return line

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
