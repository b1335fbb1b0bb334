"""Faults beside workers and coordinators: disks, clocks, numbers, strangers."""
import socket

from harness import HEDDLE
import coordinators
import namespaces  # pylint: disable=wrong-import-order,import-error  # harness knows its folder.
from faults import Fault
from world import WORKERS


class DiskFull(Fault):
    """That of the run's output or that of the coordinator's store."""

    @classmethod
    def choose(cls, world, chance, busy):
        disks = ["run disk", "store disk"][:2 if isinstance(world.service, coordinators.Alone) else 1]
        disk = chance.choice(disks)
        return [] if disk in busy else [disk]

    def begin(self):
        self.disk = self.world.run_disk if self.victim == "run disk" else self.world.store_disk
        self.disk.fill()

    def happened(self):
        return self.disk.full()

    def end(self):
        self.disk.free()
        return True


class ClockOff(Fault):
    """The wall clock of a worker or of the coordinator that leads jumps by an hour, and back. Other faults may hit the
    same process meanwhile.
    """

    harmless = True
    JUMP = 3600

    @classmethod
    def choose(cls, world, chance, busy):
        victim = "clock of " + chance.choice([world.service.leader() or world.service.names[0], *WORKERS])
        return [] if victim in busy else [victim]

    def begin(self):
        self.clock = self.world.clocks[self.victim.removeprefix("clock of ")]
        self.seen = self.clock.seen()
        self.jump = self.chance.choice([-self.JUMP, self.JUMP])
        self.clock.jump(self.jump)

    def happened(self):
        return self.clock.seen() > self.seen

    def end(self):
        self.clock.jump(0)
        return True

    def __str__(self):
        return f"{super().__str__()}, {self.jump:+d} s"


class NotANumber(Fault):
    """The first result that a worker computes in some step is no number: nobody applies the step, and it counts."""

    harmless = True
    hold = 120

    @classmethod
    def choose(cls, world, chance, busy):
        return [] if "numbers" in busy else ["numbers"]

    def begin(self):
        self.seconds = 0
        self.worker = self.step = None
        self.aim()

    def aim(self):
        """At a step that is not begun yet, and a worker that takes part in the plan as it is now."""
        members = sorted(self.world.members())
        if members:
            self.step = self.world.step() + self.chance.randrange(4, 9)
            self.worker = self.chance.choice(members)
            self.world.spoil(self.worker, self.step)

    def happened(self):
        event = self.world.events.event_of(self.step)
        if event is not None and event["gradient_norm"] is None:
            return True
        if self.step is None or (event is not None and self.world.step() > self.step + 4):
            self.aim()  # It was no member any more, or the step was begun already.
        return False

    def end(self):
        return True

    def __str__(self):
        return f"{self.kind} in step {self.step} of {self.worker}"


class StrangerKnocks(Fault):
    """A worker that has the name of one that is there, and bytes that are no protocol."""

    harmless = True

    @classmethod
    def choose(cls, world, chance, busy):
        return [] if "strangers" in busy else ["strangers"]

    def begin(self):
        self.seconds = 2
        name = self.chance.choice(WORKERS)
        self.second = self.world.start([*namespaces.within(name), HEDDLE, "worker", "--coordinator",
                                        self.world.listen, "--name", name], {"TMPDIR": self.world.temporary})
        host, port = self.world.service.addresses()[0].rsplit(":", 1)
        self.connection = socket.socket()
        self.connection.setblocking(False)
        self.connection.connect_ex((host, int(port)))

    def happened(self):
        return self.second.poll() is None

    def end(self):
        try:
            self.connection.send(bytes(self.chance.randrange(256) for _ in range(4096)))
        except OSError:
            pass
        self.connection.close()
        self.second.kill()
        self.second.wait(30)
        return True


KINDS = [DiskFull, ClockOff, NotANumber, StrangerKnocks]
