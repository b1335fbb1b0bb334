"""checkpoint.keep with several rules, and `heddle checkpoint prune`: which checkpoints of a real run stay.

Usage: retention_test.py HEDDLE
"""
import json
import os

from harness import Run, Scratch, heddle

STEPS, EVERY = 40, 5


def steps_in(root):
    return [int(name.removeprefix("step-")) for name in sorted(os.listdir(root)) if name.startswith("step-")]


def loss_of(root, step):
    """As the checkpoint itself tells it."""
    with open(os.path.join(root, f"step-{step:08}", "MANIFEST.json"), encoding="utf-8") as manifest:
        return json.loads(json.load(manifest)["extra"])["validation_loss"]


def prune(root, *options, code=0):
    done = heddle("checkpoint", "prune", root, *options)
    assert done.returncode == code, (options, done.returncode, done.stderr)
    return done


def main():
    with Scratch() as folder:
        # So large a learning rate that the loss does not simply fall: the best need not be the last.
        run = Run(os.path.join(folder, "run"), overrides=[
            f"steps={STEPS}", f"checkpoint.every={EVERY}", f"validation.every={EVERY}",
            "checkpoint.keep={last: 2, every: 20, best: loss}", "optimizer.learning_rate=0.05"])
        run.start().finish()
        losses = {event["step"]: event["loss"] for event in run.events("validation")}
        assert sorted(losses) == list(range(EVERY, STEPS + 1, EVERY)), losses
        best = min(losses, key=lambda step: (losses[step], -step))
        print(f"best: step {best}; {losses}", flush=True)
        root = os.path.join(run.folder, "checkpoints")
        assert steps_in(root) == sorted({35, 40, 20, best}), (steps_in(root), best)
        for step in steps_in(root):
            assert abs(loss_of(root, step) - losses[step]) < 1e-7, step  # Events have nine digits.
            assert heddle("checkpoint", "verify", os.path.join(root, f"step-{step:08}")).returncode == 0

        before = steps_in(root)
        leaving = [step for step in before if step not in (40, best)]
        said = prune(root, "--last", "1", "--best", "--dry-run").stdout.splitlines()
        assert said == [f"would remove step {step}" for step in leaving], said
        assert steps_in(root) == before
        said = prune(root, "--last", "1", "--best").stdout.splitlines()
        assert said == [f"removed step {step}" for step in leaving], said
        assert steps_in(root) == sorted({40, best})
        assert "--last 0" in prune(root, "--last", "0", code=2).stderr
        assert "--every x" in prune(root, "--last", "1", "--every", "x", code=2).stderr
        prune(root, code=2)


if __name__ == "__main__":
    main()
