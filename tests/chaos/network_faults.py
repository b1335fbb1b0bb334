"""Faults of a worker's network: packets that its namespace's filter drops, and links that are slow."""
import namespaces  # pylint: disable=import-error  # harness knows its folder.
from faults import Fault
from world import GATE, RATE, WORKERS, Packets, now


class NetworkFault(Fault):
    of_members = True

    def watch(self):
        # Each look is a process: it is enough when the time is over.
        if now() - self.begun >= self.seconds:
            super().watch()


class Cut(NetworkFault):
    """The packets of a worker's namespace that match `rules` are dropped."""

    def rules(self):
        raise NotImplementedError

    def begin(self):
        self.packets = Packets(self.victim, self.kind)
        self.packets.drop(*self.rules())

    def happened(self):
        return self.packets.dropped() > 0

    def end(self):
        self.packets.pass_all()
        return True

    def others(self):
        return [name for name in WORKERS if name != self.victim]

    def addresses(self, names):
        return "{ " + ", ".join(self.world.network.address(name) for name in names) + " }"


class ControlPathLost(Cut):
    def rules(self):
        return [("output", f"ip daddr {GATE}"), ("input", f"ip saddr {GATE}")]


class OneWayLost(Cut):
    """What it says to some of the others does not arrive; what they say does."""

    def rules(self):
        deaf = self.chance.sample(self.others(), self.chance.randrange(1, len(WORKERS)))
        return [("output", f"ip daddr {self.addresses(deaf)}")]


class LossOfPackets(Cut):
    """One packet in twenty, both ways."""

    def rules(self):
        return [(hook, "numgen random mod 100 < 5") for hook in ("input", "output")]


class CutOff(Cut):
    """From everybody."""

    def rules(self):
        return [(hook, f'{side} != "lo"') for hook, side in (("input", "iifname"), ("output", "oifname"))]


class Split(NetworkFault):
    """Two halves, the coordinator in one."""

    count = 4

    def begin(self):
        here = ", ".join(self.world.network.address(name) for name in WORKERS if name not in self.victims)
        self.cuts = [Packets(name, self.kind) for name in self.victims]
        for packets in self.cuts:
            packets.drop(*((hook, f"ip {side} {{ {GATE}, {here} }}")
                           for hook, side in (("input", "saddr"), ("output", "daddr"))))

    def happened(self):
        return any(packets.dropped() > 0 for packets in self.cuts)

    def end(self):
        for packets in self.cuts:
            packets.pass_all()
        return True


class Throttled(NetworkFault):
    """Both ways of its link at a hundredth of their rate."""

    def disciplines(self, rate):
        outside = self.world.network.outside(self.victim)
        inside = outside.replace("hv", "hw", 1)
        namespaces.command("tc", "qdisc", "replace", "dev", outside, "root", *rate)
        namespaces.command(*namespaces.within(self.victim), "tc", "qdisc", "replace", "dev", inside, "root", *rate)

    def begin(self):
        self.seconds *= 2
        self.disciplines([word if word != "400mbit" else "4mbit" for word in RATE])

    def happened(self):
        said = namespaces.command("tc", "-s", "qdisc", "show", "dev", self.world.network.outside(self.victim))
        return "rate 4Mbit" in said and " overlimits 0 " not in said

    def end(self):
        self.disciplines(RATE)
        return True


KINDS = [ControlPathLost, OneWayLost, LossOfPackets, CutOff, Split, Throttled]
