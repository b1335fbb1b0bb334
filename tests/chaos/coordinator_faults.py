"""Faults of the coordinator: of the one that leads, where two take turns."""
import resource
import signal
import socket

import coordinators
from faults import Fault
from world import GATE, LEASE, descriptors, is_stopped, limit, now


class CoordinatorFault(Fault):
    @classmethod
    def choose(cls, world, chance, busy):
        return [] if "coordinator" in busy else ["coordinator"]

    def leader(self):
        """Its name and its process; while nobody leads the first one's."""
        self.name = self.world.service.leader() or self.world.service.names[0]
        return self.world.coordinators[self.name]


class CoordinatorKilled(CoordinatorFault):
    def begin(self):
        self.process = self.leader()
        self.world.ended.add(self.name)
        self.process.kill()

    def happened(self):
        return self.process.poll() == -signal.SIGKILL

    def end(self):
        self.world.wait_end(self.process)
        if isinstance(self.world.service, coordinators.Alone) and self.world.is_full():
            return False  # It would end, and say why.
        self.world.serve(self.name)
        return True


class CoordinatorStopped(CoordinatorFault):
    """For longer than the leases or for less."""

    def begin(self):
        self.process = self.leader()
        self.process.send_signal(signal.SIGSTOP)

    def happened(self):
        return is_stopped(self.process)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        return True


class CoordinatorOvertaken(CoordinatorStopped):
    """Until the other one leads; then it goes on, and has to stand by."""

    @classmethod
    def possible(cls, world):
        return isinstance(world.service, coordinators.Turns)

    def begin(self):
        super().begin()
        self.seconds = 0

    def happened(self):
        return self.world.service.leader() not in (None, self.name)

    def end(self):
        super().end()
        return not self.fired or self.world.service.phase(self.name) == "standby"


class CoordinatorDoubled(CoordinatorFault):
    """A second one of the same store, while the first works or is stopped: it ends with a reason, and nobody notices.
    """

    @classmethod
    def possible(cls, world):
        return isinstance(world.service, coordinators.Alone)

    def begin(self):
        self.seconds = self.chance.uniform(1, 2) * LEASE
        self.process = self.leader()
        if self.chance.random() < 0.5:
            self.process.send_signal(signal.SIGSTOP)
        self.second = self.world.start(self.world.serve_command(self.name, GATE + ":0"))

    def happened(self):
        return self.second.poll() is not None

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        code = self.world.wait_end(self.second, 60)
        assert code > 0, f"a second coordinator of the same store ended with {code}: {self.world.errors()}"
        return True


class CoordinatorWithoutDescriptors(CoordinatorFault):
    """Many connections, and so few descriptors that it takes none of them: the last ones are for other things, or
    there is none at all. One that it had taken and that says nothing it would close after five seconds, not sooner and
    not later.
    """

    SPEAKS_WITHIN = 5

    def begin(self):
        process = self.leader()
        self.process = process
        self.before = limit(process, resource.RLIMIT_NOFILE, descriptors(process) + self.chance.choice([0, 8]))
        self.seconds = 2
        host, port = self.world.address_of(self.name).rsplit(":", 1)
        self.idle = []
        for _ in range(24):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex((host, int(port)))
            self.idle.append(connection)

    def closed(self):
        """How many the coordinator has closed."""
        count = 0
        for connection in self.idle:
            try:
                count += connection.recv(1, socket.MSG_PEEK) == b""
            except BlockingIOError:
                pass
            except OSError:
                count += 1
        return count

    def happened(self):
        lasted = now() - self.begun
        if lasted < self.SPEAKS_WITHIN:
            return self.closed() > 0
        return lasted > self.SPEAKS_WITHIN + 1 and self.closed() < len(self.idle)

    def end(self):
        for connection in self.idle:
            connection.close()
        if self.process.poll() is None:
            limit(self.process, resource.RLIMIT_NOFILE, self.before[0])
        return True


KINDS = [CoordinatorKilled, CoordinatorStopped, CoordinatorOvertaken, CoordinatorDoubled, CoordinatorWithoutDescriptors]
