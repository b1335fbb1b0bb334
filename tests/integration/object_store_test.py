"""A job whose checkpoints lie in an object store that is not ours: its losses and its states are those of a job that
saves into a folder; it goes on from there when all of it was killed; another one begins from it; `heddle checkpoint`
reads it by URL. A store that goes away while the job trains costs checkpoints, not the job.

Usage: object_store_test.py HEDDLE BUILD_FOLDER. Exit code 77: skipped (tests/support/object_store.py).
"""
import os
import random
import signal
import sys

from harness import Run, Scratch, check_same, heddle, seed, wait_for
import object_store  # pylint: disable=import-error

STEPS = 24
REQUEUE = 75
JOB = [f"steps={STEPS}", "optimizer.schedule=constant", "checkpoint.every=4", "validation.every=8"]
# Every worker is restarted with the whole job: its coordinator and its workers are one group of processes.


def in_store(name):
    return f"s3://{object_store.BUCKET}/{name}"


def run_job(folder, name, *overrides):
    return Run(os.path.join(folder, name), overrides=[*JOB, *overrides])


def succeeds(*arguments):
    result = heddle("checkpoint", *arguments)
    assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
    return result.stdout


def kill_all(run):
    pids = list(run.pids().values())
    run.process.kill()
    run.wait()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def check_commands(folder, root, local):
    """The subcommands by URL."""
    newest = f"{root}/step-{STEPS:08}"
    listed = succeeds("ls", root).splitlines()
    assert len(listed) == 3 and newest in listed[-1], listed
    assert "sound" in succeeds("verify", newest + "/")
    assert "step" in succeeds("inspect", newest)
    assert "equal" in succeeds("diff", newest, os.path.join(local, f"step-{STEPS:08}"))
    succeeds("reshard", newest, os.path.join(folder, "resharded"), "--workers", "3")
    succeeds("convert", newest, os.path.join(folder, "converted"), "--to", "safetensors")
    assert "equal" in succeeds("diff", os.path.join(folder, "resharded"), newest)
    for arguments, code in ((("verify", f"{root}/step-00000001"), 2), (("ls", f"{root}/none"), 2),
                            (("inspect", "gs://bucket/a"), 2), (("verify", "s3://no-such-bucket-here/a"), 2),
                            (("convert", newest, f"{root}/new", "--to", "native"), 2)):
        result = heddle("checkpoint", *arguments)
        assert result.returncode == code and len(result.stderr.splitlines()) == 1, (arguments, result)


def main():
    object_store.require(os.path.abspath(sys.argv[2]))
    dice = random.Random(seed())
    with Scratch() as folder, object_store.Store() as store:
        plain = run_job(folder, "plain").start().finish(180)
        losses = plain.losses()
        root = in_store("job")
        run = run_job(folder, "job", f"checkpoint.store={root}").start()
        run.wait_step(dice.randrange(5, STEPS - 4))
        wait_for("a checkpoint", lambda: run.events("checkpoint"))
        kill_all(run)
        run.start().finish(180)
        check_same(run, losses, STEPS)
        assert not os.path.exists(os.path.join(run.folder, "checkpoints")), "a folder that nobody asked for"
        check_commands(folder, root, os.path.join(plain.folder, "checkpoints"))

        other = run_job(folder, "other", f"steps={STEPS + 4}", f"checkpoint.resume={root}/step-{STEPS:08}",
                        f"checkpoint.store={in_store('other')}").start().finish(180)
        assert min(other.losses()) == STEPS + 1, other.losses()
        began = run_job(folder, "began", f"init_from={root}/step-{STEPS:08}",
                        f"checkpoint.store={in_store('began')}").start().finish(180)
        assert len(began.losses()) == STEPS

        os.environ["HEDDLE_STORE_TIMEOUT"] = "2"
        # It does not end by itself, so that the store comes back in time.
        away = run_job(folder, "away", "steps=100000", f"checkpoint.store={in_store('away')}").start()
        wait_for("a checkpoint", lambda: away.events("checkpoint"))
        store.proxy.fault = lambda *_: "slow_down"
        wait_for("a failed save", lambda: away.events("checkpoint_failed"))
        store.proxy.fault = lambda *_: None
        away.wait_step(STEPS)
        away.process.send_signal(signal.SIGTERM)
        assert away.wait() == REQUEUE, away.errors()[-2000:]
        check_same(away, losses, STEPS)
        assert "sound" in succeeds("verify", f"{in_store('away')}/step-{away.step():08}")

        store.proxy.fault = lambda *_: "forbidden"
        refused = run_job(folder, "refused", f"checkpoint.store={in_store('refused')}").start()
        assert refused.wait() != 0 and "HTTP 403" in refused.errors(), refused.errors()
        assert object_store.SECRET not in refused.errors()
        store.proxy.fault = lambda *_: None


if __name__ == "__main__":
    main()
