"""What losses cost a job of eight unlike local workers with 250 MB of state: killed workers come back, halves do not.

undisturbed_seconds  of a step without a loss
crash_p50, crash_p99 seconds from a SIGKILL to the completion of a step that had not been completed before it
repeated             steps that one kill makes run again, on average
goodput              steps completed a second over those of the undisturbed run of the same repetition
survivors            throughput of the four that are left over what they train alone, all at once, in sum
same_losses          1: after half of the workers was lost, every loss equals that of the undisturbed run

torchrun: eight processes of current PyTorch train a model of that size data-parallel, checkpoints every 10 steps, under
elastic restart; `lost_seconds` and `repeated` of one kill, of both, and their ratios.
"""
import json
import os
import random
import signal
import subprocess
import time

from mixed.task import Mix
from support import heddle, peers, report
from support.heddle import Failure, Train

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "job.yaml")
WORKERS = "abcdefgh"
LOST_AT_ONCE = "aceg"  # Every second, so that unlike speeds are left.
WARM = 10  # Steps: connections are made, and drift has had its say.
# Seconds between two kills, and the least goodput that is the goal.
INTERVALS = {60: 0.97, 30: 0.92, 15: 0.85}
FULL = {"repetitions": 3, "kills": 5, "halves": 3, "torch_kills": 5}
QUICK = {"repetitions": 1, "kills": 2, "halves": 1, "torch_kills": 1}
TIMEOUT = 300
RESTART = "elastic.restart=true"
LOST_FEWER = 10  # As torchrun loses, over ours.


def pids(run):
    """Of the workers that train, by name."""
    try:
        with open(os.path.join(run.folder, "job.json"), encoding="utf-8") as file:
            return {worker["name"]: worker["pid"] for worker in json.load(file)["workers"]}
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def completed(run):
    """When each step was completed first."""
    first = {}
    for event in run.events("step"):
        first.setdefault(event["step"], event["time"])
    return first


def wait_step(run, step):
    heddle.wait_until(f"step {step}", lambda: run.check_running() or step in completed(run), TIMEOUT)


def start(folder, extra=()):
    run = Train(folder, JOB, extra).start()
    wait_step(run, WARM)
    return run


def kill(run, chance):
    """Kills one worker, any, and returns when."""
    name, pid = chance.choice(sorted(pids(run).items()))
    begun = time.time()
    os.kill(pid, signal.SIGKILL)
    report.say(f"  {name} killed")
    return begun


def latencies(first, kills):
    """Seconds from each kill to the next step that had not been completed; kills before the last such step."""
    found = []
    for killed in kills:
        before = max(step for step, when in first.items() if when <= killed)
        after = [when for step, when in first.items() if step > before]
        found.append(min(after) - killed)
    return found


def undisturbed(options, number, seconds):
    """Steps a second."""
    run = start(os.path.join(options.folder, f"undisturbed-{number}"))
    try:
        time.sleep(seconds)
        run.check_running()
    finally:
        run.stop()
    times = sorted(when for step, when in completed(run).items() if step >= WARM)
    return (len(times) - 1) / (times[-1] - times[0])


def disturbed(options, number, interval, kills, chance):
    """Steps a second, and each kill's latency and steps run again."""
    run = start(os.path.join(options.folder, f"killed-{interval}-{number}"), [RESTART])
    killed = []
    begun = time.time()
    try:
        for index in range(kills):
            time.sleep(max(0.0, begun + (index + 0.5) * interval - time.time()))
            run.check_running()
            killed.append(kill(run, chance))
        time.sleep(max(0.0, begun + kills * interval - time.time()))
        run.check_running()
    finally:
        run.stop()
    first = completed(run)
    ended = begun + kills * interval
    steps = sum(begun < when <= ended for when in first.values())
    repeated = sum(event["steps_repeated"] for event in run.events("resumed"))
    return steps / (ended - begun), latencies(first, killed), repeated / kills


def kills(options, settings, rows, chance):
    found = {interval: {"goodput": [], "latency": [], "repeated": []} for interval in INTERVALS}
    seconds = []
    for number in range(settings["repetitions"]):
        rate = undisturbed(options, number, 60)
        seconds.append(1 / rate)
        for interval in INTERVALS:
            if options.only not in f"kills-{interval}":
                continue
            here, latency, repeated = disturbed(options, number, interval, settings["kills"], chance)
            report.say(f"kills every {interval} s, repetition {number + 1}: goodput {here / rate:.3f}, "
                       f"next step after {' '.join(f'{one:.2f}' for one in latency)} s, {repeated:.2g} steps repeated")
            found[interval]["goodput"].append(here / rate)
            found[interval]["latency"] += latency
            found[interval]["repeated"].append(repeated)
    rows.add({}, "heddle", True, "undisturbed_seconds", report.median(seconds), "s")
    every = []
    for interval, goal in INTERVALS.items():
        case = {"kills_every": f"{interval}s"}
        if not found[interval]["goodput"]:
            continue
        goodput = report.median(found[interval]["goodput"])
        rows.add(case, "heddle", True, "goodput", goodput, "ratio")
        rows.add(case, "heddle", True, "repeated", report.median(found[interval]["repeated"]), "steps")
        every += found[interval]["latency"]
        report.say(f"goodput at a kill every {interval} s: {goodput:.3f} (goal >= {goal})")
    every.sort()
    if every:
        case = {"kills": len(every)}
        rows.add(case, "heddle", True, "crash_p50", report.median(every), "s")
        rows.add(case, "heddle", True, "crash_p99", every[min(len(every) - 1, int(0.99 * len(every)))], "s")


def survivors_alone(options, number):
    """Tokens a second of those that are left, each by itself, all at once."""
    path = os.path.join(options.folder, f"survivors-{number}.yaml")
    with open(JOB, encoding="utf-8") as file:
        lines = [line for line in file if not any(f"name: {name}," in line for name in LOST_AT_ONCE)]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
    mix = Mix(path, options.folder, {"scale": 1.0, "alone_steps": 3})
    mix.run_alone()
    return mix.throughput["alone"][-1]


def halves(options, settings, rows):
    """Half of the workers is killed at once, and does not come back."""
    ratios, latency, same = [], [], True
    for number in range(settings["halves"]):
        run = start(os.path.join(options.folder, f"halved-{number}"), ["checkpoint.every=0"])
        try:
            found = pids(run)
            killed = time.time()
            for name in LOST_AT_ONCE:
                os.kill(found[name], signal.SIGKILL)
            wait_step(run, max(completed(run)) + 5)
            settled = max(completed(run))
            wait_step(run, settled + 15)
        finally:
            run.stop()
        first = completed(run)
        latency += latencies(first, [killed])
        steps = [event for event in run.events("step") if event["step"] >= settled]
        alone = survivors_alone(options, number)
        ratios.append(heddle.rate(steps, steps[0]["tokens"]) / alone)
        reference = Train(os.path.join(options.folder, f"whole-{number}"), JOB,
                          [f"steps={settled}", "workers=[{name: a}]"]).start().finish(TIMEOUT)
        losses = {event["step"]: event["loss"] for event in run.events("step")}
        same = same and all(losses[event["step"]] == event["loss"] for event in reference.events("step"))
        report.say(f"half of the workers lost, {number + 1}: {ratios[-1]:.3f} of the survivors' sum, next step after "
                   f"{latency[-1]:.2f} s, losses {'equal' if same else 'UNLIKE'}")
    case = {"lost_at_once": len(LOST_AT_ONCE), "runs": len(ratios)}
    rows.add(case, "heddle", True, "survivors", report.median(ratios), "ratio")
    rows.add(case, "heddle", True, "crash_p50", report.median(latency), "s")
    rows.add(case, "heddle", True, "same_losses", int(same), "")
    return not same


class Torchrun:
    """Eight processes under torchrun's elastic restart."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder)
        self.log = open(folder + ".log", "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [peers.python(), "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={len(WORKERS)}",
             "--max_restarts=1000", "--monitor_interval=0.1", os.path.join(HERE, "torch_elastic.py"), folder],
            stdout=self.log, stderr=self.log, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def steps(self):
        """(step, when) of every step, those that were run again, too."""
        try:
            with open(os.path.join(self.folder, "steps"), encoding="ascii") as lines:
                return [(int(step), float(when)) for step, when in (line.split() for line in lines)]
        except FileNotFoundError:
            return []

    def completed(self):
        first = {}
        for step, when in self.steps():
            first.setdefault(step, when)
        return first

    def wait_step(self, step):
        heddle.wait_until(f"torchrun's step {step}", lambda: self.check_running() or step in self.completed(), TIMEOUT)

    def check_running(self):
        if self.process.poll() is not None:
            raise Failure(f"torchrun: exit code {self.process.returncode}, see {self.folder}.log")

    def kill(self, chance):
        with open(os.path.join(self.folder, f"pid-{chance.randrange(len(WORKERS))}"), encoding="ascii") as file:
            pid = int(file.read())
        begun = time.time()
        os.kill(pid, signal.SIGKILL)
        return begun

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def torchrun(options, settings, rows, chance):
    """One kill after the other, of both in turns; what each lost."""
    lost = {"heddle": [], "torchrun": []}
    repeated = {"heddle": [], "torchrun": []}
    for number in range(settings["torch_kills"]):
        ours = start(os.path.join(options.folder, f"beside-torchrun-{number}"), ["checkpoint.every=10", RESTART])
        try:
            wait_step(ours, WARM + 10 + chance.randrange(10))
            killed = kill(ours, chance)
            wait_step(ours, max(completed(ours)) + 10)
        finally:
            ours.stop()
        step_seconds = report.median([event["seconds"] for event in ours.events("step")])
        lost["heddle"].append(max(0.0, latencies(completed(ours), [killed])[0] - step_seconds))
        repeated["heddle"].append(sum(event["steps_repeated"] for event in ours.events("resumed")))
        theirs = Torchrun(os.path.join(options.folder, f"torchrun-{number}"))
        try:
            theirs.wait_step(WARM + 10 + chance.randrange(10))
            killed = theirs.kill(chance)
            theirs.wait_step(max(theirs.completed()) + 2)
        finally:
            theirs.stop()
        first = theirs.completed()
        times = sorted(when for when in first.values() if when <= killed)
        step_seconds = report.median([after - before for before, after in zip(times, times[1:])])
        lost["torchrun"].append(latencies(first, [killed])[0] - step_seconds)
        repeated["torchrun"].append(len(theirs.steps()) - len(first))
        report.say(f"one kill, {number + 1}: seconds lost: heddle {lost['heddle'][-1]:.2f}, torchrun "
                   f"{lost['torchrun'][-1]:.2f}; steps repeated: {repeated['heddle'][-1]}, {repeated['torchrun'][-1]}")
    case = {"kills": settings["torch_kills"]}
    for name, values in lost.items():
        rows.add(case, name, name == "heddle", "lost_seconds", report.median(values), "s")
        rows.add(case, name, name == "heddle", "repeated", sum(repeated[name]) / len(values), "steps")
    ratio = report.median(lost["torchrun"]) / max(1e-3, report.median(lost["heddle"]))
    rows.add(case, "heddle", True, "lost_seconds_fewer", ratio, "ratio")
    report.say(f"torchrun loses {ratio:.3g} times the seconds (goal >= {LOST_FEWER})")


def run(options, rows):
    settings = dict(QUICK if options.quick else FULL)
    if options.repeat:
        settings["repetitions"] = options.repeat
    seed = random.SystemRandom().randrange(2**31)
    report.say(f"victims by seed {seed}")
    chance = random.Random(seed)
    failed = False
    try:
        if any(options.only in f"kills-{interval}" for interval in INTERVALS):
            kills(options, settings, rows, chance)
        if options.only in "halves":
            failed = halves(options, settings, rows)
        if options.only in "torchrun":
            if os.path.exists(peers.python()):
                torchrun(options, settings, rows, chance)
            else:
                report.say(f"torchrun: {peers.python()} is not there; benchmarks/setup installs it")
    except Failure as failure:
        report.say(str(failure))
        failed = True
    return failed or not rows.rows
