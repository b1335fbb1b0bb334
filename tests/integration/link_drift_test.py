"""A worker's link that carries a small part of what it did while the job trains: it is noticed, what it carries is
measured again beside the training, and a plan for it is put in force or found not to pay. No loss notices. With
`elastic.drift: observe` the same is logged, and no plan is looked for.
"""
import os

from harness import SMOKE, Run, Scratch, check_same, check_samples, heddle, wait_for
from harness.served import losses_until

GLOBAL_BATCH = 24
STEPS = 100_000  # None of it ends by itself.
USUAL = 80  # More than the windows after which a generation has its usual steps.

JOB = [f"steps={STEPS}", "checkpoint.every=0", "elastic.drift_threshold=1.3"]
LINK = "link=1MB/s"


def slow_link(folder, name, *overrides):
    """A run in which the last worker's link is slow from some step on, up to the event that says so."""
    run = Run(os.path.join(folder, name), overrides=[*JOB, *overrides]).start()
    run.wait_step(USUAL)
    worker = run.events("plan")[-1]["plan"]["workers"][-1]
    slowed = heddle("emulate", worker, LINK, "--run", run.folder)
    assert slowed.returncode == 0, slowed.stderr
    wait_for("a link that has drifted", lambda: run.events("link_drift") or run.process.poll() is not None)
    assert run.process.poll() is None, run.errors()[-1000:]
    suspected, drifted = run.events("links_suspected"), run.events("link_drift")[0]
    print(f"{name}: {suspected} {drifted}", flush=True)
    assert suspected, "the links were not suspected first"
    assert worker in (drifted["from"], drifted["to"]), drifted
    assert drifted["bytes_per_second"] < min(2e6, drifted["planned_bytes_per_second"] / 2), drifted
    return run


def answers(run):
    return [event for kind in ("decision", "plan_kept") for event in run.events(kind) if event["cause"] == "drift"]


def main():
    with Scratch() as folder:
        run = slow_link(folder, "acts")
        # A busy machine may change a worker's speed, too, which has an answer of its own.
        wait_for("an answer about the link", lambda: any(
            "its link to" in item["what"] for event in answers(run) for item in event["evidence"]))
        last = run.step() + 4
        run.wait_step(last)
        run.process.kill()
        assert run.events("worker_lost") == [], run.events("worker_lost")

        watched = slow_link(folder, "observes", "elastic.drift=observe")
        watched.wait_step(watched.step() + 4)
        watched.process.kill()
        assert not answers(watched) and len(watched.events("plan")) == 1, watched.events("plan")

        check_same(run, losses_until(folder, SMOKE, last, *JOB), last)
        check_samples(run, last, GLOBAL_BATCH)


main()
