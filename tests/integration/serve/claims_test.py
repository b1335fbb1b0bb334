"""An output folder is one job's and one living coordinator's, and a coordinator whose store is lost goes on with what
is there: its generations are above all that the checkpoints know, so that they commit.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, heddle, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import WORKERS, Cluster, write_job  # noqa: E402

STEPS = 100


def submit(cluster, job, out, *overrides):
    changes = [word for override in overrides for word in ("--set", override)]
    return heddle("submit", job, "--coordinator", cluster.listen, "--out", out, *changes)


def check_refused(done, what):
    assert done.returncode == 2 and what in done.stderr and done.stderr.count("\n") == 1, done


def lines(path):
    with open(path, "rb") as file:
        return file.read()


def check_names(cluster, job, folder):
    for name in ("../escaped", "a/b", "..", ""):
        check_refused(submit(cluster, job, os.path.join(folder, "named"), f"name={name!r}"), "name")
    assert not os.path.exists(os.path.join(folder, "named"))


def main():
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Cluster(folder, "first") as first, Cluster(folder, "second") as second:
            out = first.run.folder
            second.run.folder = out
            first.serve()
            second.serve()
            check_names(first, job, folder)
            first.submit(job)
            for name in WORKERS:
                first.worker(name)
            wait_for("a checkpoint", lambda: first.run.events("checkpoint"))

            check_refused(submit(second, job, out), "another coordinator works in it")
            check_refused(submit(second, job, out, "seed=9"), "another coordinator works in it")
            assert second.status()["phase"] == "idle"

            first.coordinator.kill()
            first.coordinator.wait(60)
            for name in WORKERS:
                first.kill(name)
            before = lines(os.path.join(out, "events.jsonl"))
            check_refused(submit(second, job, out, "seed=9"), "belongs to another job")
            train = heddle("train", job, "--out", out, "--quiet", "--set", "seed=9")
            check_refused(train, "belongs to another job")
            assert lines(os.path.join(out, "events.jsonl")) == before, "a refused job wrote into the folder"

            known = max(event["generation"] for event in first.run.events("plan"))
            last = max(event["step"] for event in first.run.events("checkpoint"))
            second.submit(job)
            for name in WORKERS:
                second.worker(name)
            second.finish()
            after = second.run.events()[len(before.splitlines()):]
            plans = [event["generation"] for event in after if event["event"] == "plan"]
            assert plans and min(plans) > known, (plans, known)
            assert not [event for event in after if event["event"] == "checkpoint_failed"], after
            saved = [event["step"] for event in after if event["event"] == "checkpoint"]
            assert saved == list(range(last + 10, STEPS + 1, 10)), (last, saved)
            print(f"generations {plans} after {known}, checkpoints {saved} after {last}")


main()
