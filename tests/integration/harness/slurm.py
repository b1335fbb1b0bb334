"""A Slurm of this machine alone, for a test: munged, slurmctld and slurmd with their own folder, key and ports."""
import os
import shutil
import socket
import subprocess
import time

from harness import PATIENCE, processes
from ports import held_port

CONFIGURATION = """ClusterName=heddle
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={munge},cred_expire=5
CryptoType=crypto/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillOnBadExit=0
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=500
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
"""


class Unavailable(Exception):
    """Slurm cannot be here; the message says why. One that is installed and does not start is an error."""


class Slurm:
    """Everything ends with the `with`; the daemons end with this process, too."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "slurm")
        self.environment = dict(os.environ, SLURM_CONF=os.path.join(self.folder, "slurm.conf"))
        self.daemons = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise Unavailable("slurmctld and slurmd are started as root")
        for program in ("munged", "slurmctld", "slurmd", "srun"):
            if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
                raise Unavailable(f"{program} is not installed (slurm-wlm, munge)")
        try:
            self.begin()
        except (subprocess.SubprocessError, OSError) as error:
            self.__exit__()
            raise AssertionError(f"Slurm does not start: {error}\n{self.logs()}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        os.makedirs(os.path.join(self.folder, "state"))
        os.makedirs(os.path.join(self.folder, "spool"))
        # munged insists that nobody else can write where its socket and key are.
        os.chmod(self.folder, 0o755)
        key = os.path.join(self.folder, "munge.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(128))
        munge = os.path.join(self.folder, "munge.socket")
        host = socket.gethostname().split(".")[0]
        with open(self.environment["SLURM_CONF"], "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=self.folder, host=host, munge=munge, cpus=os.cpu_count(),
                                            controller_port=held_port(), node_port=held_port()))
        # --force: of the folders above the scratch folder /tmp is everybody's.
        self.daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}",
                    f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                    f"--seed-file={self.folder}/munged.seed")
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(munge):
            self.look(deadline, "munged made no socket")
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D", "-N", host)
        while True:
            tried = subprocess.run(self.command("-t", "1", "true"), env=self.environment, capture_output=True,
                                   text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
            if tried.returncode == 0:
                return
            self.look(deadline, f"srun: {tried.stderr.strip()}")

    def look(self, deadline, problem):
        """Once in the wait for something: whether there is still hope."""
        for daemon in self.daemons:
            if daemon.poll() is not None:
                raise OSError(f"{daemon.args[0]}: exit code {daemon.returncode}")
        if time.monotonic() > deadline:
            raise OSError(problem)
        time.sleep(0.1)

    def daemon(self, *command):
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        self.daemons.append(subprocess.Popen(
            command, env=dict(self.environment, PATH=path), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=processes.tied()))

    @staticmethod
    def command(*arguments):
        """The tasks may outnumber the cores: the workers of the test are slow on purpose."""
        return ["srun", "--overcommit", *arguments]

    def logs(self):
        text = ""
        for name in ("munged", "slurmctld", "slurmd"):
            try:
                with open(os.path.join(self.folder, name + ".log"), encoding="utf-8", errors="replace") as file:
                    text += f"{name}: " + f"{name}: ".join(file.readlines()[-10:])
            except OSError:
                pass
        return text

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            processes.end(daemon)
