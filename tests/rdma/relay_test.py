#!/usr/bin/env python3
"""The relay between the guests (scripts/vm/relay.cc) alone: frames in, frames out. Usage: relay_test.py RELAY"""
import json
import select
import socket
import struct
import subprocess
import sys
import time

from vm import check

# Seconds for what must not come, and after which what must come has not.
SHORT, LONG = 0.05, 120.0
HOUR = 3_600_000_000  # Microseconds.
ROCE_PORT = 4791


def address(port):
    return bytes([2, 0, 0, 0, 1, port])


def frame(source, target, number, protocol=17, port=ROCE_PORT, version=4, size=200):
    """An Ethernet frame of IP with a number in its data; target None is a broadcast."""
    transport = struct.pack(">HHHHI", 1000, port, 8, 0, number)
    if version == 4:
        head = b"\x08\x00" + struct.pack(">BBHHHBBHII", 0x45, 0, 40, 0, 0, 64, protocol, 0, 1, 2)
    else:
        head = b"\x86\xdd" + struct.pack(">IHBB16s16s", 6 << 28, 20, protocol, 64, b"", b"")
    whole = (b"\xff" * 6 if target is None else address(target)) + address(source) + head + transport
    return whole + bytes(size - len(whole))


class Network:
    """A relay with some ports, as the launcher of the guests has it."""

    def __init__(self, ports=3):
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(ports)]
        self.ports = [guest for guest, _ in pairs]
        numbers = [relay.fileno() for _, relay in pairs]
        self.relay = subprocess.Popen([sys.argv[1], *map(str, numbers)], pass_fds=numbers, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        for _, relay in pairs:
            relay.close()
        # Each hears of the others' addresses.
        for source in range(ports):
            self.send(source, None, 0)
            for port in range(ports):
                if port != source:
                    self.receive(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for port in self.ports:
            port.close()
        self.relay.stdin.close()
        check(self.relay.wait(timeout=LONG) == 0, "the relay ends when its standard input does")

    def tell(self, command):
        self.relay.stdin.write(command + "\n")
        self.relay.stdin.flush()
        return self.relay.stdout.readline().rstrip("\n")

    def order(self, command):
        answer = self.tell(command)
        check(answer == "ok", f"{command}: {answer}")

    def send(self, source, target, number, **kind):
        self.ports[source].send(frame(source, target, number, **kind))

    def receive(self, port, wait=LONG):
        """The number of the next frame, None when there is none."""
        if not select.select([self.ports[port]], [], [], wait)[0]:
            return None
        data = self.ports[port].recv(65536)
        return struct.unpack_from(">I", data, 14 + (20 if data[12] == 8 else 40) + 8)[0]

    def pass_through(self, source, target, count, **kind):
        """Sends frames 1 to count; the numbers that arrive. When the relay has counted a frame it has passed it on."""
        arrived, before = [], self.counts(source, target)["frames"]
        for number in range(1, count + 1):
            self.send(source, target, number, **kind)
            limit = time.monotonic() + LONG
            while self.counts(source, target)["frames"] != before + number:
                check(time.monotonic() < limit, f"frame {number} is not counted")
            while (got := self.receive(target, 0)) is not None:
                arrived.append(got)
        return arrived

    def counts(self, source, target):
        for link in json.loads(self.tell("counts")):
            if (link["from"], link["to"]) == (source, target):
                return link
        return None


def switching():
    """A known address is one port's; a broadcast and an unknown address are all others'."""
    with Network() as network:
        network.send(0, 2, 7)
        check(network.receive(2) == 7 and network.receive(1, SHORT) is None, "a frame for 2")
        for target in (None, 77):
            network.send(0, target, 8)
            check([network.receive(1), network.receive(2)] == [8, 8], f"a frame for {target}")
            check(network.receive(0, SHORT) is None, "a frame that came back")
        network.ports[0].send(b"short")
        got = network.pass_through(0, 1, 12)
        check(got == list(range(1, 13)), f"in order, after a frame without a header: {got}")


def cutting():
    with Network() as network:
        network.order("cut 0 1")
        check(network.pass_through(0, 1, 3) == [] and network.counts(0, 1)["cut"] == 3, "a cut direction")
        check(network.pass_through(1, 0, 3) == [1, 2, 3], "the other direction")
        check(network.pass_through(0, 2, 3) == [1, 2, 3], "another link")
        network.order("heal * *")
        check(network.pass_through(0, 1, 3) == [1, 2, 3], "healed")
        network.order("cut 0 *")
        check([network.pass_through(0, to, 2) for to in (1, 2)] == [[], []], "cut to all")
        check(network.pass_through(1, 2, 2) == [1, 2], "cut from 0 alone")


def dropping():
    with Network() as network:
        network.order("drop 0 1 3")
        check(network.pass_through(0, 1, 6) == [1, 2, 4, 5, 6], "the third")
        check(network.pass_through(0, 1, 6) == [1, 2, 3, 4, 5, 6], "once")
        network.order("drop 0 1 2 3")
        check(network.pass_through(0, 1, 6) == [1, 5, 6], "three from the second on")
        network.order("heal 0 1")
        network.order("drop-every 0 1 3")
        check(network.pass_through(0, 1, 9) == [1, 2, 4, 5, 7, 8], "every third")
        network.order("heal 0 1")
        check(network.counts(0, 1)["dropped"] == 7, "counted")


def kinds():
    """RoCE is UDP to its port, over either version of IP; other frames do not count, nor are they lost."""
    others = [{"port": 53}, {"protocol": 6}, {"protocol": 1}, {"port": 53, "version": 6}, {"protocol": 6, "version": 6}]
    with Network() as network:
        network.order("drop 0 1 1 1000")
        for kind in others:
            check(network.pass_through(0, 1, 2, **kind) == [1, 2], f"{kind} is not RoCE")
        check(network.pass_through(0, 1, 2) == network.pass_through(0, 1, 2, version=6) == [], "RoCE")
        check(network.counts(0, 1)["roce"] == 5, "the announcement, two of each version")
        network.order("heal 0 1")
        network.order("drop 0 1 1 1000 tcp")
        for version in (4, 6):
            check(network.pass_through(0, 1, 2, protocol=6, version=version) == [], "TCP")
            check(network.pass_through(0, 1, 2, version=version) == [1, 2], "not TCP")
        network.order("heal 0 1")
        network.order("drop 0 1 2 any")
        check(network.pass_through(0, 1, 2, protocol=1) == [1], "any")


def timing():
    """Delays keep the order and are at least what was said; a queue has its room and no more."""
    with Network() as network:
        network.order("delay 0 1 1000000")
        begin = time.monotonic()
        for number in range(1, 101):
            network.send(0, 1, number)
        check([network.receive(1) for _ in range(100)] == list(range(1, 101)), "order")
        check(1 <= time.monotonic() - begin < 90, "a hundred frames take one delay, not a hundred of them")
        network.order("heal 0 1")
        # 1 Mbit/s is 8 ms for a frame of 1000 bytes.
        network.order("rate 0 1 1")
        begin = time.monotonic()
        for number in range(1, 6):
            network.send(0, 1, number, size=1000)
        check([network.receive(1) for _ in range(5)] == [1, 2, 3, 4, 5], "order")
        check(time.monotonic() - begin >= 0.04, "5000 bytes take 40 ms")
        # None leaves the queue while others come.
        network.order(f"delay 0 1 {HOUR}")
        network.order("queue 0 1 2500")
        check(network.pass_through(0, 1, 5, size=1000) == [], "a delay of an hour")
        check(network.counts(0, 1)["overrun"] == 3, "room for two, and three found none")


def congestion():
    """A port that takes nothing holds up nobody else, and gets all that the queue has room for, in order."""
    with Network() as network:
        for number in range(1, 101):
            network.send(0, 1, number)
            network.send(0, 2, number)
            check(network.receive(2) == number, "the other port")
        check([network.receive(1) for _ in range(100)] == list(range(1, 101)), "what had waited")
        network.ports[1].close()
        check(network.pass_through(0, 2, 5) == [1, 2, 3, 4, 5], "after a port is gone")
        network.send(0, 1, 1)
        check(network.pass_through(0, 2, 1) == [1] and network.counts(0, 1)["gone"] == 1, "nobody is there")


def commands():
    with Network() as network:
        for command in ("", "fly 0 1", "cut", "cut 0", "cut 0 1 2", "cut 0 3", "cut -1 0", "cut 0 x", "drop 0 1",
                        "drop 0 1 0", "drop 0 1 2 3 4", "drop 0 1 roce", "drop 0 1 1 sctp", "delay 0 1",
                        "delay 0 1 1e3", "delay 0 1 1 2", "rate 0 1 -1", "queue 0 1 99999999999999999999",
                        "drop-every 0 1 0", "drop-every 0 1 2 3"):
            check(network.tell(command).startswith("error: "), f"{command!r} was accepted")
        check(network.pass_through(0, 1, 3) == [1, 2, 3], "nothing has changed")


for test in (switching, cutting, dropping, kinds, timing, congestion, commands):
    test()
    print(f"{test.__name__}: passed")
