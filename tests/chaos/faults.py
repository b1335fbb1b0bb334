"""What all kinds of faults have in common, and those of workers' processes, their memory and their storage. Each
begins, lasts for a while, ends, and says by what it is known that it happened.
"""
import os
import resource
import signal

from harness import heddle
from world import CALM, LEASE, WORKERS, is_stopped, limit, now


class Fault:
    """`victims`: workers, or the coordinator, or whatever else no other fault may hit meanwhile. `seconds`: how long it
    lasts. It lasts longer, up to `hold`, until it has happened.
    """

    count = 1  # How many workers it takes.
    of_members = False  # Those alone that the plan has.
    hold = 30  # With what it lasts less than the minute after which workers without a coordinator end.
    slow = 0  # So many seconds its own end may take beyond what all may.
    sure = True  # Whether it happens whenever nothing else stands in its way.
    # Neither a worker nor the coordinator loses anything by it: nobody may be given up for it.
    harmless = False

    def __init__(self, world, chance, victims):
        self.world, self.chance, self.victims = world, chance, victims
        self.victim = victims[0]
        self.seconds = chance.uniform(0.3, 3) * LEASE
        self.begun = now()
        self.fired = False
        self.late = None  # Since when only its own end is awaited.

    @classmethod
    def possible(cls, _world):
        """Whether it can happen here at all."""
        return True

    @classmethod
    def choose(cls, world, chance, busy):
        """Whom the next one hits; nobody: it cannot happen now. So many workers stay that no fault touches, that what
        they hold and what storage has are enough to go on.
        """
        free = [name for name in WORKERS if name not in busy]
        fit = [name for name in free if not cls.of_members or name in world.members()]
        if len(free) - cls.count < CALM or len(fit) < cls.count:
            return []
        return chance.sample(fit, cls.count)

    @property
    def kind(self):
        return type(self).__name__

    def begin(self):
        """Nothing is awaited here: other faults go on."""
        raise NotImplementedError

    def happened(self):
        """Asked again and again while it lasts: whether that is proved by now."""
        raise NotImplementedError

    def watch(self):
        self.fired = self.fired or self.happened()

    def is_over(self):
        lasted = now() - self.begun
        return lasted >= self.seconds and (self.fired or lasted >= self.seconds + self.hold)

    def end(self):
        """False: it has not ended, ask again."""
        raise NotImplementedError

    def __str__(self):
        return f"{self.kind} of {', '.join(self.victims)} for {self.seconds:.1f} s"


class Killed(Fault):
    def begin(self):
        self.world.ended.add(self.victim)
        self.process = self.world.signal(self.victim, signal.SIGKILL)

    def happened(self):
        return self.process.poll() == -signal.SIGKILL

    def end(self):
        self.world.wait_end(self.process)
        self.world.worker(self.victim)
        return True


class Stopped(Fault):
    """For longer than its lease or for less."""

    def begin(self):
        self.process = self.world.signal(self.victim, signal.SIGSTOP)

    def happened(self):
        return is_stopped(self.process)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        return True


class Flapping(Fault):
    """It is killed whenever it has come, until the coordinator holds it off."""

    hold = 120

    def begin(self):
        self.seconds = 0
        self.quarantines = len(self.world.quarantines(self.victim))
        self.kill()

    def kill(self):
        self.world.ended.add(self.victim)
        self.process = self.world.signal(self.victim, signal.SIGKILL)
        self.due = None

    def happened(self):
        if self.victim in self.world.ended:
            if self.process.poll() is not None:
                self.world.worker(self.victim)
                self.process = self.world.workers[self.victim]
            return False
        if len(self.world.quarantines(self.victim)) > self.quarantines:
            return True
        if self.due is None and self.world.joined(self.victim):
            self.due = now() + self.chance.uniform(0, 2)
        if self.due is not None and now() >= self.due:
            self.kill()
        return False

    def end(self):
        return self.victim not in self.world.ended


class Drained(Fault):
    """By an operator, or by a signal where no coordinator takes the operator's word; another process follows."""

    of_members = True

    def begin(self):
        self.world.ended.add(self.victim)
        self.process = self.world.workers[self.victim]
        by_operator = self.chance.random() < 0.5
        if not by_operator or heddle("drain", self.victim, "--coordinator", self.world.listen).returncode != 0:
            self.process.send_signal(signal.SIGTERM)

    def happened(self):
        return self.process.poll() is not None

    def end(self):
        code = self.process.poll()
        if code is None:
            return False
        assert code == 0, f"drained worker {self.victim} ended with {code}: {self.world.errors()}"
        self.world.worker(self.victim)
        return True


class StorageStalled(Fault):
    """Each fsync of the worker's saves takes ten seconds."""

    of_members = True
    hold = 120

    def begin(self):
        fired = self.world.file_of(self.victim, "stalled")
        if os.path.exists(fired):
            os.unlink(fired)
        with open(self.world.file_of(self.victim, "stall"), "wb"):
            pass
        self.seconds = 12

    def happened(self):
        return os.path.exists(self.world.file_of(self.victim, "stalled"))

    def end(self):
        os.unlink(self.world.file_of(self.victim, "stall"))
        return True


class MemoryRefused(Fault):
    """It gets no more memory from the system, while the end of another worker may make it need some. It may end of
    that, also later, when there is memory again: it is started again. Else it is well again.
    """

    count = 2
    of_members = True
    sure = False  # What it has freed may be enough.
    hold = 10
    # Who hears nothing of the coordinator ends after a minute, and its threads after half of one.
    slow = 90
    LOOK = 2  # Seconds: each is a process.

    def begin(self):
        other = self.victims[1]
        self.world.ended |= {self.victim, other}
        self.process = self.world.workers[self.victim]
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        self.before = limit(self.process, resource.RLIMIT_AS, pages * resource.getpagesize() // 2)
        self.said = os.path.getsize(self.world.log_path)
        self.other = self.world.signal(other, signal.SIGKILL)
        self.look = None  # At the worker, next: after there is memory again.

    def happened(self):
        if self.process.poll() is not None:
            return True
        with open(self.world.log_path, encoding="utf-8", errors="replace") as log:
            log.seek(self.said)
            return any("no memory" in line and f" {self.victim} " in line for line in log)

    def release(self):
        """There is memory again. What the refusal has broken is known after the lease at the latest."""
        if self.process.poll() is None:
            limit(self.process, resource.RLIMIT_AS, self.before[0])
        self.world.wait_end(self.other)
        self.world.worker(self.victims[1])
        self.look = now() + 2 * LEASE

    def end(self):
        if self.look is None:
            self.release()
        if self.process.poll() is not None:
            self.world.worker(self.victim)
            return True
        if now() < self.look:
            return False
        self.look = now() + self.LOOK
        if self.victim not in self.world.ready():
            return False
        self.world.ended.discard(self.victim)
        return True


class MemoryExhausted(Fault):
    """Its control group has no more memory than it uses just then, and the kernel kills it for the next page."""

    of_members = True

    @classmethod
    def possible(cls, world):
        return bool(world.groups)

    def begin(self):
        self.world.ended.add(self.victim)
        self.process = self.world.workers[self.victim]
        self.group = self.world.groups[self.victim]
        self.kills = self.group.kills()
        self.seconds = 0.5

    def happened(self):
        if self.process.poll() is None:
            self.group.limit(self.group.used())
            return False
        return self.group.kills() > self.kills and self.process.poll() == -signal.SIGKILL

    def end(self):
        self.group.limit(None)
        if self.process.poll() is not None:
            self.world.worker(self.victim)
        self.world.ended.discard(self.victim)
        return True


KINDS = [Killed, Stopped, Flapping, Drained, StorageStalled, MemoryRefused, MemoryExhausted]
