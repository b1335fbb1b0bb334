"""Workers that a launcher starts together, by the command that docs/operate/launching.md gives."""
import contextlib
import os
import re
import shlex
import signal
import subprocess

from harness import HEDDLE, REPOSITORY, SMOKE, Run, check_same, processes, wait_for
from harness.served import Cluster

# Of the smoke job's 40: enough for a fault, and for what follows it.
STEPS = 15
FEWER = f"steps={STEPS}"
WORKERS = "abcd"


def documented_command(launcher, coordinator):
    """The line of the document that begins with `launcher`, for the coordinator at hand."""
    with open(os.path.join(REPOSITORY, "docs", "operate", "launching.md"), encoding="utf-8") as file:
        lines = re.findall(rf"^{launcher} .*$", file.read(), re.MULTILINE)
    assert len(lines) == 1, f"docs/operate/launching.md has {len(lines)} commands of {launcher}"
    words = shlex.split(lines[0])
    words[words.index("--coordinator") + 1] = coordinator
    return words


class LaunchedCluster(Cluster):
    """`heddle serve`, and one launcher process with all workers. A launcher that is killed leaves its workers: it is
    asked to end, and what is left of them is killed."""

    def __exit__(self, *problem):
        pids = self.run.pids().values()
        for launcher in self.workers.values():
            processes.end(launcher)
        super().__exit__(*problem)
        for pid in pids:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") == HEDDLE:
                    os.kill(pid, signal.SIGKILL)

    def launch(self, launcher, environment):
        environment = dict(environment, PATH=os.path.dirname(HEDDLE) + ":" + environment["PATH"])
        self.workers[launcher] = subprocess.Popen(documented_command(launcher, self.listen), stdout=self.log,
                                                  stderr=self.log, stdin=subprocess.DEVNULL, env=environment,
                                                  preexec_fn=processes.tied(signal.SIGTERM))
        wait_for("all workers in the list", lambda: sorted(self.run.pids()) == list(WORKERS) or self.finished()
                 or self.workers[launcher].poll() is not None)
        assert self.workers[launcher].poll() is None or self.finished(), self.errors()


def check_launcher(folder, launcher, environment):
    """The smoke job gives the losses of `heddle train`; with a worker killed, too."""
    # Started within a launcher's step, `heddle train` is not one of its workers, nor are those that it starts.
    os.environ.update(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="4")
    alone = Run(os.path.join(folder, "alone"), overrides=[FEWER]).start().finish().losses()
    del os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
    with LaunchedCluster(folder, "whole") as cluster:
        cluster.serve()
        cluster.submit(SMOKE, FEWER)
        cluster.launch(launcher, environment)
        cluster.finish()
        check_same(cluster.run, alone, STEPS)
    with LaunchedCluster(folder, "killed") as cluster:
        cluster.serve()
        cluster.submit(SMOKE, FEWER)
        cluster.launch(launcher, environment)
        cluster.wait_step(5)
        pids = cluster.run.pids()
        assert sorted(pids) == list(WORKERS), pids
        os.kill(pids["b"], 9)
        wait_for("the job's end", cluster.finished, 180)
        assert [event["worker"] for event in cluster.run.events("worker_lost")] == ["b"], cluster.errors()
        check_same(cluster.run, alone, STEPS)
        cluster.workers[launcher].wait(60)
