#!/usr/bin/env python3
"""What befalls the members of a group, again and again: in a random operation one of four processes is killed, stopped,
loses its link or is no longer heard. Each survivor must leave its call with an error that names it, long before the
call's deadline where a connection broke; the next group forms among the survivors, in their processes, and a new
member; at the end nothing is left over.

Usage: faults_test.py MEMBER FAMILY RUNS [JSON]. RUNS: in the tier full, fewer in the others. JSON: where to write the
times, in seconds, which then have bounds: `benchmarks/run recovery` measures, a test does not. FAMILY: shm, tcp, tls
(processes of this host), links (tcp between network namespaces; needs root, else exit 77) or verbs (HEDDLE_TEST_RDMA
names the device, HEDDLE_ADDRESS the address).
"""
import json
import os
import pathlib
import queue
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import namespaces  # pylint: disable=wrong-import-position,import-error
import pauses  # pylint: disable=wrong-import-position,import-error
import processes  # pylint: disable=wrong-import-position,import-error
import tiers  # pylint: disable=wrong-import-position,import-error

MEMBER, FAMILY = sys.argv[1:3]
RUNS = tiers.scaled(2, 4, int(sys.argv[3]))
MEASURES = len(sys.argv) > 4
SLOWDOWN = int(os.environ.get("HEDDLE_TEST_SLOWDOWN", "1"))
MEMBERS = 4
OPERATIONS = ("messages", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "records",
              "reduce_tree", "reduce_scatter_tree")
# The smallest has something for everyone: whoever is not needed may be gone for long before a call notices.
SIZES = (64, 4096, 100_000, 4 << 20)
# What only a fault exceeds, however busy the machine is.
AMPLE = 120
# Of an operation that a break ends before, and of one that nothing else ends: members need a part of it to find out
# whom all of them wait for.
VISIBLE_TIMEOUT = 1.0 if MEASURES else 60.0
SILENT_TIMEOUT = 1.0 if MEASURES else max(3.0, SLOWDOWN)
# From the fault to the end of every survivor's call, 99 of 100; and the median of what a group takes to form.
VISIBLE_BOUND, SILENT_BOUND, FORMING_BOUND = 0.2, 1.1, 0.05
# What a peer sees of it: a connection that breaks, or nothing.
FAULTS = {"shm": ("killed", "stopped"), "tcp": ("killed", "stopped"), "tls": ("killed", "stopped"),
          "verbs": ("killed", "stopped"), "links": ("killed", "stopped", "unplugged", "unheard")}
SILENT = ("stopped", "unplugged", "unheard")
# What a member has without a group, as `leave` answers it: descriptors, threads, mappings of shared memory.
KEPT = ("descriptors", "threads", "mappings of shared memory")
# Resident memory may grow by what allocators keep, in the first groups and afterwards.
WARM_GROUPS = 4
GROWTH_KIB = 32 << 10


def fail(text):
    raise AssertionError(text)


class Member:
    """A process in a place of the network."""

    def __init__(self, name, place, network):
        self.name, self.place = name, place
        transport = "tcp" if FAMILY == "links" else FAMILY
        address = network.address(place) if network else os.environ.get("HEDDLE_ADDRESS", "127.0.0.1")
        words = [MEMBER, name, address, transport]
        if FAMILY == "verbs":
            words.append(os.environ["HEDDLE_TEST_RDMA"])
        self.process = subprocess.Popen([*(namespaces.within(place) if network else []), *words],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        preexec_fn=processes.tied())
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        self.address = self.hear("address")[0]
        self.idle = None  # KEPT without a group.
        self.resident = []  # KiB after each group.

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(["gone"])

    def say(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def hear(self, first):
        try:
            words = self.lines.get(timeout=AMPLE)
        except queue.Empty:
            fail(f"{self.name}: no `{first}` within {AMPLE} s")
        if words[0] == "gone":
            fail(f"{self.name} ended with exit code {self.process.wait(AMPLE)} where `{first}` was expected")
        if words[0] != first:
            fail(f"{self.name}: expected `{first}`, got {' '.join(words)}")
        return words[1:]

    def kill(self):
        self.process.kill()
        self.process.wait(AMPLE)


def objects_of_device():
    """{kind: how many} of queue pairs, registrations and the like that the device holds for all processes."""
    text = subprocess.run(["rdma", "resource", "show", os.environ["HEDDLE_TEST_RDMA"]], check=True, timeout=AMPLE,
                          capture_output=True, text=True).stdout
    return {kind: int(count) for kind, count in re.findall(r" (pd|cq|qp|mr) (\d+)", text)}


class Trial:
    def __init__(self, chance, network):
        self.chance, self.network = chance, network
        self.pauses = pauses.Pauses() if MEASURES else None
        self.born = 0
        self.generation = 0
        self.members = [self.new(place) for place in range(MEMBERS)]
        self.forming, self.visible, self.silent = [], [], []
        self.idle_device = None

    def new(self, place):
        self.born += 1
        return Member(f"worker-{self.born}", place, self.network)

    def lasted(self, begin, end):
        """Seconds, without those for which the machine stood still where that is known."""
        return end - begin - (self.pauses.within(begin, end) if self.pauses else 0)

    def form(self, timeout):
        self.generation += 1
        everyone = [f"{member.name}={member.address}" for member in self.members]
        for rank, member in enumerate(self.members):
            member.say("form", self.generation, rank, int(timeout * 1000), *everyone)
        self.forming.append(max(float(member.hear("formed")[0]) for member in self.members))

    def befall(self, fault, victim):
        """Returns from when on it is so. A network takes a while to change, up to tenths of a second on a busy machine,
        and carries the members' messages meanwhile."""
        begun = time.monotonic()
        if fault == "killed":
            victim.process.kill()
        elif fault == "stopped":
            victim.process.send_signal(signal.SIGSTOP)
        else:
            (self.network.unplug if fault == "unplugged" else self.network.mute)(victim.place)
            begun = time.monotonic()
        return begun

    def undo(self, fault, victim):
        victim.kill()
        if fault == "unplugged":
            self.network.plug(victim.place)
        elif fault == "unheard":
            self.network.unmute(victim.place)

    def run(self):
        operation, size = self.chance.choice(OPERATIONS), self.chance.choice(SIZES)
        fault, victim = self.chance.choice(FAULTS[FAMILY]), self.chance.choice(self.members)
        what = f"{victim.name} {fault} in {operation} of {size} bytes (generation {self.generation + 1})"
        self.form(SILENT_TIMEOUT if fault in SILENT else VISIBLE_TIMEOUT)
        for member in self.members:
            member.say("run", operation, size)
        for member in self.members:
            member.hear("running")
        time.sleep(self.chance.uniform(0, 0.02))
        begun = self.befall(fault, victim)
        survivors = [member for member in self.members if member is not victim]
        named = 0
        heard = []
        for member in survivors:
            nanoseconds, code, *text = member.hear("ended")
            took = self.lasted(begun, int(nanoseconds) / 1e9)
            message = " ".join(text)
            heard.append(f"{member.name} after {took:.3f} s: {code} {message}")
            if victim.name in message.replace(":", " ").replace(",", " ").replace(";", " ").split():
                named += 1
            elif operation != "messages":
                fail(f"{what}: {member.name} does not name it: " + "; ".join(heard))
            (self.silent if fault in SILENT else self.visible).append((took, f"{what}: {member.name}"))
            if fault not in SILENT and code.rstrip(":") == "DEADLINE_EXCEEDED":
                fail(f"{what}: the break ended nothing: " + "; ".join(heard))
        # Who has the victim's last message already waits for the next one of a survivor, and names that one.
        if named == 0:
            fail(f"{what}: nobody names it: " + "; ".join(heard))
        self.undo(fault, victim)
        for member in survivors:
            self.leave(member, what)
        if FAMILY == "verbs":
            self.check_device(what)
        self.members[self.members.index(victim)] = self.new(victim.place)

    @staticmethod
    def leave(member, what):
        """Nothing of a group remains; a connection may linger for a second until its peer has read why it ended."""
        limit = time.monotonic() + AMPLE
        while True:
            member.say("leave")
            *left, resident = [int(word) for word in member.hear("left")]
            member.idle = member.idle or left
            if all(now <= before for now, before in zip(left, member.idle)):
                member.idle = left
                break
            if time.monotonic() > limit:
                fail(f"{what}: {member.name} has {left} {', '.join(KEPT)}, had {member.idle}")
            time.sleep(0.05)
        member.resident.append(resident)
        warm = max(member.resident[:WARM_GROUPS])
        if resident > warm + GROWTH_KIB:
            fail(f"{what}: {member.name} has {resident} KiB of memory after {len(member.resident)} groups, had {warm}")

    def check_device(self, what):
        """What three members without a group hold of the device does not grow."""
        limit = time.monotonic() + AMPLE
        while True:
            objects = objects_of_device()
            self.idle_device = self.idle_device or objects
            if all(objects[kind] <= count for kind, count in self.idle_device.items()):
                self.idle_device = objects
                return
            if time.monotonic() > limit:
                fail(f"{what}: the device holds {objects}, held {self.idle_device}")
            time.sleep(0.05)

    def finish(self):
        """The last group works, and nothing remains."""
        self.form(VISIBLE_TIMEOUT)
        for operation in OPERATIONS:
            for member in self.members:
                member.say("once", operation, 10_000)
            for member in self.members:
                answer = member.hear("once")
                if answer != ["OK"]:
                    fail(f"{member.name}: {operation}: {' '.join(answer)}")
        for member in self.members:
            member.process.stdin.close()
            if member.process.wait(AMPLE) != 0:
                fail(f"{member.name}: exit code {member.process.returncode}")

    def report(self):
        def shape(name, values, part):
            if not values:
                return f"{name} none"
            values = sorted(values)
            late = values[min(len(values) - 1, int(part * len(values)))]
            return f"{name} median {1e3 * statistics.median(values):.1f} ms, p{int(part * 100)} {1e3 * late:.1f} ms"

        def times(values):
            return [took for took, _ in values]

        print(f"{FAMILY}: {RUNS} runs; " + "; ".join((shape("visible break", times(self.visible), 0.99),
                                                     shape("silent", times(self.silent), 0.99),
                                                     shape("forming", self.forming, 0.5))), flush=True)
        # One late answer in a hundred (at least one) is the machine's.
        for name, values, bound in (("visible", self.visible, VISIBLE_BOUND), ("silent", self.silent, SILENT_BOUND)):
            late = sorted(values)[-1 - max(1, len(values) // 100):]
            if len(values) > 1 and late[0][0] > bound:
                fail(f"a {name} break was noticed late, bound {bound:.3f} s: " +
                     "; ".join(f"{took:.3f} s, {what}" for took, what in late))
        if statistics.median(self.forming) > FORMING_BOUND:
            fail(f"a group took {statistics.median(self.forming):.3f} s to form")


def main():
    seed = int(os.environ.get("HEDDLE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"HEDDLE_TEST_SEED={seed}", flush=True)
    network = None
    if FAMILY == "links":
        if os.geteuid() != 0:
            print("SKIPPED: network namespaces need root", file=sys.stderr)
            sys.exit(77)
        try:
            network = namespaces.Bridged(range(MEMBERS), namespaces.subnet(128))
        except OSError as error:
            print(f"SKIPPED: no network namespaces here: {error}", file=sys.stderr)
            sys.exit(77)
    trial = None
    try:
        trial = Trial(random.Random(seed), network)
        for _ in range(RUNS):
            trial.run()
        trial.finish()
        if MEASURES:
            with open(sys.argv[4], "w", encoding="utf-8") as file:
                json.dump({"visible": [took for took, _ in trial.visible], "silent": [took for took, _ in trial.silent],
                           "forming": trial.forming}, file)
            trial.report()
    finally:
        for member in trial.members if trial else []:
            member.kill()
        if network:
            network.remove()


main()
