"""A checkpoint of a job with a card goes on on processors alone, and theirs on the card."""
import os

from job_check.check import CARD, PROCESSORS
from job_check.losses import newest_checkpoint

CLOSE = 1e-4  # Of losses in fp32 that two kinds of worker compute from the same weights, relative.
STEP_SECONDS = 0.2
# The steps of the checkpoints that are read. No gradient is applied in the step behind each: its own checkpoint holds
# what was read, and the loss of the next step is the first one of those weights.
WRITTEN, AGAIN = 4, 8


def run(check):
    spoilt = os.path.join(check.folder, "spoilt-steps")
    with open(spoilt, "w", encoding="ascii") as file:
        file.write(f"{WRITTEN + 1}\n{AGAIN + 1}\n")
    os.environ["HEDDLE_SPOILT_STEPS"] = spoilt
    try:
        return compare(check, *trained(check))
    finally:
        del os.environ["HEDDLE_SPOILT_STEPS"]


def trained(check):
    """The runs: with the card, of processors from its checkpoint, on the card from theirs."""
    batch = check.batch_near(STEP_SECONDS * 2 * check.speed(PROCESSORS[0]))
    runs = []
    for name, workers, last in (("with-card", (CARD, PROCESSORS[0]), WRITTEN + 2),
                                ("processors", PROCESSORS[:2], AGAIN + 2), ("card-again", (CARD,), AGAIN + 2)):
        resume = f", resume: {newest_checkpoint(runs[-1], AGAIN if len(runs) > 1 else WRITTEN)}" if runs else ""
        job = check.job(name, [check.entry(worker) for worker in workers], batch,
                        f"steps: {last}\non_non_finite: skip\ncheckpoint: {{every: 1, keep: 20{resume}}}\n")
        runs.append(check.start(name, job).finish())
    return runs


def compare(check, *runs):
    said, passed = [], True
    for writer, reader, step in ((runs[0], runs[1], WRITTEN), (runs[1], runs[2], AGAIN)):
        written, read = newest_checkpoint(writer, step), newest_checkpoint(reader, step + 1)
        whole = [check.heddle("checkpoint", "verify", "--quiet", path, codes=(0, 1))[0] == 0
                 for path in (written, read)]
        equal = check.heddle("checkpoint", "diff", "--quiet", written, read, codes=(0, 1))[0] == 0
        before, after = writer.losses(), reader.losses()
        assert before[step + 1] is None and after[step + 1] is None, f"step {step + 1} was applied"
        away = abs(after[step + 2] - before[step + 2]) / before[step + 2]
        check.note("checkpoint", step=step, whole=whole, equal=equal, loss=before[step + 2],
                   loss_of_reader=after[step + 2], relative=away, bound=CLOSE)
        passed = passed and all(whole) and equal and away <= CLOSE
        said.append(f"{os.path.basename(writer.folder)} to {os.path.basename(reader.folder)}: "
                    f"{'whole' if all(whole) else 'DAMAGED'}, weights {'equal' if equal else 'DIFFER'}, "
                    f"loss {away:.1e} away (bound {CLOSE:g})")
    return "; ".join(said), passed
