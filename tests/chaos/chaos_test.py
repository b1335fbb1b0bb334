"""Faults at random of real processes in network namespaces, several at a time, while a job of eight workers trains.

What must hold, whatever happens: the losses and the final weights are those of the undisturbed run, bit for bit; each
sample is trained on once; nobody ends whose end no fault has asked for; training goes on soon after the faults have
ended; each fault is seen to have happened; a notice to all ends in a checkpoint that loses no step; no process, port,
file or segment is left. Faults that take nothing from anybody have nobody given up.

Usage: chaos_test.py HEDDLE STORAGE_FAULTS CLOCK_FAULTS [SECONDS [KIND…]]; 300 s and all kinds without
them. HEDDLE_CHAOS_COORDINATORS: alone, or turns (two with their store in etcd); else by chance, where etcd is.
Exit 77: not root, or no namespaces, packet filter or file systems here.
"""
import collections
import os
import random
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "integration")]
from harness import Run, Scratch, check_same, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
import coordinator_faults  # noqa: E402
import faults  # noqa: E402
import left  # noqa: E402
import network_faults  # noqa: E402
import other_faults  # noqa: E402
from world import GLOBAL_BATCH, LEASE, WORKERS, World, now, write_job  # noqa: E402

KINDS = [*faults.KINDS, *network_faults.KINDS, *coordinator_faults.KINDS, *other_faults.KINDS]
# Without a fault training goes on within so many seconds: leases end, limits of changes are multiples of them.
PATIENCE = 20 * LEASE
PAUSE = 3  # Seconds between two faults, in the mean.
# Of all faults that are sure, and one more, so many need not be seen to have happened: others stood in their way. Of
# those that are not, so many have to.
MISSED = 0.02
SEEN = 0.3


class Chaos:
    def __init__(self, world, chance, kinds):
        self.world, self.chance, self.kinds = world, chance, kinds
        self.active = []
        self.deck = []  # The kinds that come next: each once before any comes again.
        self.done = collections.Counter()
        self.fired = collections.Counter()
        self.log = []
        self.begun = now()

    def say(self, text):
        self.log.append(f"{now() - self.begun:7.1f} s, step {self.world.step()}: {text}")

    def inject(self):
        """The first kind of the deck that can happen now."""
        if len(self.deck) < len(self.kinds):
            self.deck += self.chance.sample(self.kinds, len(self.kinds))
        busy = {victim for fault in self.active for victim in fault.victims}
        for place, kind in enumerate(self.deck):
            victims = kind.choose(self.world, self.chance, busy)
            if victims:
                del self.deck[place]
                fault = kind(self.world, self.chance, victims)
                fault.begin()
                self.say(str(fault))
                self.active.append(fault)
                return

    def end_due(self):
        for fault in list(self.active):
            fault.watch()
            if not fault.is_over():
                continue
            if not fault.end():
                # What it waits for may wait for another fault's end.
                fault.late = fault.late if fault.late and len(self.active) == 1 else now()
                assert now() - fault.late < PATIENCE + fault.slow, f"{fault} does not end: {self.world.errors()}"
                continue
            self.active.remove(fault)
            self.done[fault.kind] += 1
            self.fired[fault.kind] += fault.fired
            self.say(f"end of {fault}{'' if fault.fired else ', WHICH DID NOT HAPPEN'}")

    def go(self, seconds):
        """Faults for so many seconds; then their ends."""
        end = now() + seconds
        following = now()
        seen, progressed = self.world.step_events(), now()
        while now() < end or self.active:
            if now() < end and now() >= following:
                self.inject()
                following = now() + self.chance.expovariate(1 / PAUSE)
            self.end_due()
            self.world.check_ends()
            if self.world.step_events() > seen or self.active:
                seen, progressed = self.world.step_events(), now()
            assert now() - progressed < PATIENCE, f"no step for {PATIENCE:.0f} s without a fault: {self.world.errors()}"
            time.sleep(0.02)

    def check_fired(self):
        sure = [kind.__name__ for kind in self.kinds if kind.sure]
        count = sum(self.done[kind] for kind in sure)
        missed = count - sum(self.fired[kind] for kind in sure)
        assert missed <= 1 + MISSED * count, f"{missed} faults did not happen: {self.figures()}"
        for kind in (kind.__name__ for kind in self.kinds if not kind.sure):
            assert self.fired[kind] >= int(SEEN * self.done[kind]), f"{kind} hardly ever happened: {self.figures()}"

    def check_lost(self):
        """Where nobody could be lost, nobody was."""
        lost = self.world.events.events("worker_lost")
        assert not lost or not all(kind.harmless for kind in self.kinds), f"given up for nothing: {lost}"

    def figures(self):
        return "\n".join(f"  {kind}: {self.fired[kind]} of {count} happened"
                         for kind, count in sorted(self.done.items()))


def check_whole(world):
    """Everybody trains, or stands by because the plan is quicker without it, and steps go on."""
    wait_for("all workers", lambda: world.check_ends() or world.ready() == set(WORKERS), 4 * PATIENCE)
    seen = world.step_events()
    wait_for("steps of all", lambda: world.check_ends() or world.step_events() > seen + 2, PATIENCE)


def skipped(world, last):
    """The steps that were not applied because of a fault."""
    steps = {step for step in range(1, last + 1) if world.events.event_of(step)["gradient_norm"] is None}
    assert steps <= world.spoilt(), f"steps without a norm that no fault has spoilt: {sorted(steps - world.spoilt())}"
    return steps


def check_bits(folder, job, world, last):
    """Losses, samples and weights against one worker that nothing disturbs, but that the same steps are spoilt."""
    path = os.path.join(folder, "spoilt")
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{step}\n" for step in skipped(world, last))
    os.environ["HEDDLE_SPOILT_STEPS"] = path
    alone = Run(os.path.join(folder, "undisturbed"), job, ["workers=[{name: a}]", "elastic.minimum_workers=1",
                                                           f"checkpoint.every={last}"]).start()
    wait_for("the undisturbed run", lambda: alone.events("checkpoint") or alone.process.poll() is not None,
             120 + last)
    assert alone.events("checkpoint"), alone.errors()
    losses = alone.losses()
    alone.process.kill()
    alone.process.wait(60)
    check_same(world.run, losses, last)
    check_samples(world.run, last, GLOBAL_BATCH)
    checkpoint = f"checkpoints/step-{last:08d}"
    same = heddle("checkpoint", "diff", os.path.join(world.run.folder, checkpoint),
                  os.path.join(alone.folder, checkpoint), timeout=120)
    assert same.returncode == 0, same.stdout + same.stderr


def take_turns(chance):
    """Whether there are two coordinators."""
    by_chance = chance.random() < 0.5
    asked = os.environ.get("HEDDLE_CHAOS_COORDINATORS", "")
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        assert asked != "turns", "two coordinators that take turns need etcd"
        return False
    return asked == "turns" if asked else by_chance


def start(world, job):
    for name in world.service.names:
        world.serve(name)
    world.submit(job)
    for name in WORKERS:
        world.worker(name)
    wait_for("the first steps", lambda: world.check_ends() or world.step() > 3, 240)


def run(world, chance, seconds, folder, job):
    kinds = [kind for kind in KINDS if kind.possible(world) and (kind.__name__ in sys.argv[5:] or not sys.argv[5:])]
    before = left.segments()
    start(world, job)
    chaos = Chaos(world, chance, kinds)
    try:
        chaos.go(seconds)
        check_whole(world)
        last = world.stop_all()
        left.check_processes(world, before)
        check_bits(folder, job, world, last)
        chaos.check_fired()
        chaos.check_lost()
    except BaseException:
        print("\n".join(chaos.log), flush=True)
        raise
    resumed = [event["seconds"] for event in world.events.events("resumed")]
    print(f"{last} steps, {sum(chaos.done.values())} faults of {len(chaos.done)} kinds, {len(world.service.names)} "
          f"coordinators; {len(resumed)} resumptions, the longest {max(resumed, default=0):.1f} s\n{chaos.figures()}")


def main():
    chance = random.Random(seed())
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 300
    if os.geteuid() != 0 or shutil.which("nft") is None:
        print("SKIPPED: this needs root and the packet filter's nft", file=sys.stderr)
        sys.exit(77)
    with Scratch() as folder:
        job = write_job(folder, prose(folder))
        libraries = {"storage": os.path.abspath(sys.argv[2]), "clock": os.path.abspath(sys.argv[3])}
        try:
            world = World(folder, libraries, take_turns(chance))
        except OSError as error:
            print(f"SKIPPED: no namespaces or file systems here: {error}", file=sys.stderr)
            sys.exit(77)
        with world:
            run(world, chance, seconds, folder, job)
        left.check_machine(folder)


main()
