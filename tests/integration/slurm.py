"""A Slurm of this machine alone, for a test: munged, slurmctld and slurmd with their own folder, key and ports."""
import os
import shutil
import signal
import socket
import subprocess
import time

CONFIGURATION = """ClusterName=heddle
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={munge}
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
    """Slurm cannot be started here; the message says why."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    """Everything ends with the `with`."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "slurm")
        self.environment = dict(os.environ, SLURM_CONF=os.path.join(self.folder, "slurm.conf"))

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
            raise Unavailable(f"{error}: {self.logs()}") from error
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
                                            controller_port=free_port(), node_port=free_port()))
        # --force: of the folders above the scratch folder /tmp is everybody's.
        self.daemon("munged", "--force", f"--key-file={key}", f"--socket={munge}",
                    f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                    f"--seed-file={self.folder}/munged.seed")
        self.daemon("slurmctld", "-c")
        self.daemon("slurmd", "-N", host)
        deadline = time.monotonic() + 30
        while True:
            tried = subprocess.run(self.command("-t", "1", "true"), env=self.environment, capture_output=True,
                                   text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
            if tried.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise OSError(f"srun: {tried.stderr.strip()}")
            time.sleep(0.2)

    def daemon(self, *command):
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        done = subprocess.run(command, env=dict(self.environment, PATH=path), capture_output=True, text=True,
                              timeout=60, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise OSError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")

    @staticmethod
    def command(*arguments):
        """The tasks may outnumber the cores: the workers of the test are slow on purpose."""
        return ["srun", "--overcommit", *arguments]

    def logs(self):
        text = ""
        for name in ("munged", "slurmctld", "slurmd"):
            try:
                with open(os.path.join(self.folder, name + ".log"), encoding="utf-8", errors="replace") as file:
                    text += "".join(file.readlines()[-3:])
            except OSError:
                pass
        return text

    def __exit__(self, *_):
        for name in ("slurmd", "slurmctld", "munged"):
            try:
                with open(os.path.join(self.folder, name + ".pid"), encoding="utf-8") as file:
                    pid = int(file.read())
                os.kill(pid, signal.SIGTERM)
                deadline = time.monotonic() + 10
                while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
                    time.sleep(0.05)
                if os.path.exists(f"/proc/{pid}"):
                    os.kill(pid, signal.SIGKILL)
            except (OSError, ValueError):
                pass
