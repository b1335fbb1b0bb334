"""A job that is submitted writes where the operator of the coordinator lets it, and nowhere else: whoever tries is told
so, and nothing is written.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, heddle, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import Cluster, write_job  # noqa: E402


def tree(folder):
    """Every path below it, the coordinators' own state and logs left out."""
    found = set()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith("-store")]
        found.update(os.path.join(where, name) for name in folders + names if not name.endswith(".log"))
    return found


class Rooted(Cluster):
    """A coordinator whose jobs write below `roots`."""

    def __init__(self, folder, name, roots):
        super().__init__(folder, name)
        self.roots = [word for root in roots for word in ("--output-root", root)]

    def start(self, *command):
        if command[1] == "serve":
            command = [*command[:command.index("--output-root")], *self.roots]
        return super().start(*command)

    def try_submit(self, job, out, *overrides):
        changes = [word for override in overrides for word in ("--set", override)]
        where = ["--out", out] if out else []
        return heddle("submit", job, "--coordinator", self.listen, *where, *changes)


def check_refused(done, what):
    assert done.returncode == 2 and re.search(what, done.stderr) and done.stderr.count("\n") == 1, done


def main():
    with Scratch() as folder:
        job = write_job(folder, prose(folder), 5)
        root = os.path.join(folder, "root")
        with Rooted(folder, "first", [root, "s3://lab/runs"]) as first, Rooted(folder, "second", [root]) as second, \
                Rooted(folder, "default", []) as default:
            for cluster in (first, second, default):
                cluster.serve()
            os.symlink("/tmp", os.path.join(root, "link"))
            before = tree(folder)
            good = os.path.join(root, "good")
            for out in ("/heddle-outside", os.path.join(folder, "outside"), root + "/../outside", root,
                        root + "/a/../../outside", root + "/link/heddle-outside"):
                check_refused(first.try_submit(job, out), "not below a place where this coordinator's jobs may write")
            for store in (os.path.join(folder, "outside"), "/heddle-outside", root + "/link/outside",
                          "s3://foreign/runs/a", "s3://lab/other", "s3://lab/runs/../other", "s3://lab/runs"):
                check_refused(first.try_submit(job, good, f"checkpoint.store={store}"), "checkpoint.store .*not below")
            check_refused(first.try_submit(job, None, f"output={folder}/outside"), "output folder .*not below")
            check_refused(default.try_submit(job, good), "default-store/runs")
            assert tree(folder) == before, tree(folder) ^ before
            assert first.status()["phase"] == "idle"

            taken = first.try_submit(job, good)
            assert taken.returncode == 0, taken
            before = tree(folder)
            check_refused(second.try_submit(job, good + "/inside", "seed=9"), "in the folder of another job")
            check_refused(second.try_submit(job, root + "/b", "seed=9", f"checkpoint.store={good}/checkpoints"),
                          "checkpoint.store .*in the folder of another job")
            check_refused(second.try_submit(job, good, "seed=9"), "another coordinator works in it|another job")
            assert tree(folder) == before, tree(folder) ^ before

            named = default.try_submit(job, None)
            assert named.returncode == 0, named
            place = os.path.join(default.store, "runs", "served", "job.hash")
            wait_for("the folder of a job that names none", lambda: os.path.exists(place))


main()
