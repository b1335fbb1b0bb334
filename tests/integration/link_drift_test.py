"""A worker's link that carries a small part of what it did while the job trains: it is noticed, a plan is looked for
that knows what it carries now, and is put in force or found not to pay. No loss notices. With `elastic.drift: observe`
it is logged, and no plan is looked for: there the time of steps alone makes the link suspected, and what it carries is
measured again beside the training. Where drift is acted on, a plan for a worker may come first (a busy machine changes
the speed of workers, too) and take what is known of the link, which then needs no suspicion.
"""
import os

from harness import SMOKE, Run, Scratch, check_same, check_samples, heddle, wait_for
from harness.served import losses_until

GLOBAL_BATCH = 24
STEPS = 100_000  # None of it ends by itself.
USUAL = 80  # Steps of more windows than those with which later ones are compared.
RATE = 2e6  # Bytes per second: more than the slow link carries, and far less than any other.

JOB = [f"steps={STEPS}", "checkpoint.every=0", "elastic.drift_threshold=1.3"]
LINK = "link=1MB/s"


def settle(run):
    """Waits until the steps that later ones are compared with are known: another plan begins them anew, and so does a
    suspicion without a reason, which a busy machine may raise."""
    for _ in range(10):
        begins = [len(run.events(kind)) for kind in ("plan", "plan_kept", "links_suspected")]
        run.wait_step(run.step() + USUAL)
        if begins == [len(run.events(kind)) for kind in ("plan", "plan_kept", "links_suspected")]:
            return
    raise AssertionError("the job does not come to rest")


def slow_link(folder, name, *overrides):
    """A run in which the last worker's link is slow from some step on, up to the event that says so."""
    run = Run(os.path.join(folder, name), overrides=[*JOB, *overrides]).start()
    run.wait_step(1)
    settle(run)
    worker = run.events("plan")[-1]["plan"]["workers"][-1]

    def drifted():
        return [event for event in run.events("link_drift")
                if worker in (event["from"], event["to"]) and event["bytes_per_second"] < RATE]

    slowed = heddle("emulate", worker, LINK, "--run", run.folder)
    assert slowed.returncode == 0, slowed.stderr
    wait_for("a link that has drifted", lambda: drifted() or run.process.poll() is not None)
    assert run.process.poll() is None, run.errors()[-1000:]
    first = drifted()[0]
    print(f"{name}: {run.events('links_suspected')} {first}", flush=True)
    assert first["bytes_per_second"] < first["planned_bytes_per_second"] / 2, first
    return run


def answers(run):
    return [event for kind in ("decision", "plan_kept") for event in run.events(kind) if event["cause"] != "form"]


def main():
    with Scratch() as folder:
        run = slow_link(folder, "acts")
        wait_for("an answer about the link", lambda: any(
            "its link to" in item["what"] for event in answers(run) for item in event["evidence"]))
        last = run.step() + 4
        run.wait_step(last)
        run.process.kill()
        assert run.events("worker_lost") == [], run.events("worker_lost")

        watched = slow_link(folder, "observes", "elastic.drift=observe")
        assert watched.events("links_suspected"), "no step made the links suspected"
        watched.wait_step(watched.step() + 4)
        watched.process.kill()
        assert not answers(watched) and len(watched.events("plan")) == 1, watched.events("plan")

        check_same(run, losses_until(folder, SMOKE, last, *JOB), last)
        check_samples(run, last, GLOBAL_BATCH)


main()
