"""One run of scripts/rdma-vm: starts the guests and the relay between them, passes on what they print, obeys commands,
and takes everything down.

The run's folder is mounted at its own path in every guest, writable. In it, N is the number of a guest:

    N/          the guest's current directory
    console.N   the output of its kernel
    status.N    exit code of its command
    control/    commands (see vm/control): NAME.request is a command, NAME.answer its answer
    guest.sh, init, ready.N, go   files by which the guests are set up and begin together
"""
import os
import pathlib
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

from vm import kernels, processes, processors, tap

# A guest's current directory is its own folder; other files are passed as paths of the machine.
HIDDEN = ("/tmp", "/run", "/var/tmp", "/dev")
TICK_SECONDS = 0.01
RELAY_SECONDS = 5.0
STOP_SECONDS = 20.0
# glibc's allocator returns memory and takes it again, more often with one arena per thread; under UML each page that it
# takes again costs 65 us.
UML_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000",
                   "MALLOC_TOP_PAD_": "67108864", "MALLOC_ARENA_MAX": "1"}
PASSED_ON = ("HEDDLE_", "GTEST_")
PASSED_ON_ENDS = ("SAN_OPTIONS",)
TIME_LIMIT_EXIT, BROKEN_EXIT = 124, 125


def visible(path):
    """Whether a guest sees that path of the machine without further help."""
    return not any(path == hidden or path.startswith(hidden + "/") for hidden in HIDDEN)


def guest_script(options, kind, run):
    """guest.sh: the variables for guest_init, as shell text."""
    environment = {name: value for name, value in os.environ.items()
                   if name.startswith(PASSED_ON) or name.endswith(PASSED_ON_ENDS)}
    environment.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/tmp", LANG="C.UTF-8",
                       **({**UML_ENVIRONMENT, **kernels.guest_clock(run)} if kind == "uml" else {}))
    environment.update(options.environment)
    environment.update(HEDDLE_VM=str(run), HEDDLE_GUESTS=str(options.guests))
    for name in ("HEDDLE_GUEST", "HEDDLE_ADDRESS"):  # guest_init sets them
        environment.pop(name, None)
    lines = [f"vm_kernel={kind}", f"vm_device={options.device}", f"vm_mtu={options.mtu}", f"vm_nics={options.nics}",
             "vm_mounts() {"]
    for path in sorted(set(options.see)):
        if not visible(path):
            quoted, source = shlex.quote(path), shlex.quote("/mnt" + path)
            lines.append(f"  mkdir -p {quoted} && mount --bind {source} {quoted}")
    lines += [f"  mkdir -p {run}", "}", "vm_command() ("]
    lines += [f"  export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    lines += [f"  exec {shlex.join(options.command)}", ")"]
    return "\n".join(lines) + "\n"


class Guest:
    def __init__(self, number):
        self.number = number
        self.process = None
        self.seat = None  # its processor, where it has one
        self.output = None  # our end of the pipe that it prints to
        self.line = b""
        self.powered_off = False
        self.status = None


class Network:
    """Joins the interfaces of one number of all guests: a relay."""

    def __init__(self):
        self.ends = []  # the relay's, until it has them
        self.relay = None
        self.answer = b""

    def attach(self):
        """The other end of a new port."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ends.append(ours)
        return theirs

    def start(self):
        numbers = [end.fileno() for end in self.ends]
        self.relay = processes.start([kernels.program("relay"), *map(str, numbers)], pass_fds=numbers,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close_ends(self):
        while self.ends:
            self.ends.pop().close()

    def ask(self, text):
        try:
            self.relay.stdin.write(text.encode() + b"\n")
            self.relay.stdin.flush()
            while b"\n" not in self.answer:
                if not select.select([self.relay.stdout], [], [], RELAY_SECONDS)[0]:
                    return f"error: the relay gave no answer within {RELAY_SECONDS:g} s"
                data = os.read(self.relay.stdout.fileno(), 65536)
                if not data:
                    return "error: the relay has ended"
                self.answer += data
        except OSError as error:
            return f"error: the relay: {error}"
        answer, _, self.answer = self.answer.partition(b"\n")
        return answer.decode(errors="replace")


class Run:
    def __init__(self, options, kind, folder, run):
        self.options, self.kind, self.folder, self.run = options, kind, folder, pathlib.Path(run)
        self.guests = [Guest(number) for number in range(options.guests)]
        self.networks = [Network() for _ in range(options.nics)]
        self.first_failure = 0
        self.went = False

    def prepare(self):
        self.run.mkdir(parents=True, exist_ok=True)
        (self.run / "control").mkdir(exist_ok=True)
        for guest in self.guests:
            (self.run / str(guest.number)).mkdir(exist_ok=True)
            for name in ("ready", "status", "console"):
                (self.run / f"{name}.{guest.number}").unlink(missing_ok=True)
        for stale in [self.run / "go", *(self.run / "control").iterdir()]:
            stale.unlink(missing_ok=True)
        (self.run / "guest.sh").write_text(guest_script(self.options, self.kind, self.run), encoding="utf-8")
        shutil.copy(kernels.HERE / "guest_init", self.run / "init")
        (self.run / "init").chmod(0o755)

    def start(self):
        try:
            for guest in self.guests:
                links = [network.attach() for network in self.networks]
                try:
                    self.start_guest(guest, [link.fileno() for link in links])
                finally:
                    for link in links:
                        link.close()
            if self.options.host:
                self.networks[0].ends.append(os.fdopen(tap.attach(self.options.mtu), "r+b", buffering=0))
            for network in self.networks:
                network.start()
        finally:
            for network in self.networks:
                network.close_ends()

    def start_guest(self, guest, links):
        reader, writer = os.pipe()
        guest.output = reader
        command = [kernels.program("holder"),
                   *(self.uml_command if self.kind == "uml" else self.qemu_command)(guest, links, writer)]
        if self.kind == "uml":
            guest.seat = processors.Seat()
        with open(self.run / f"console.{guest.number}", "wb") as console:
            guest.process = processes.start(
                command, processor=guest.seat and guest.seat.processor,
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, pass_fds=[*links, writer], cwd="/",
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": self.memory_folder(),
                     "HOME": "/nonexistent"})
        os.close(writer)

    def memory_folder(self):
        """Where UML keeps the guests' memory, as sparse files: a tmpfs if it is large enough."""
        wanted = self.options.memory * self.options.guests << 20
        try:
            if shutil.disk_usage("/dev/shm").free >= wanted and not os.statvfs("/dev/shm").f_flag & os.ST_NOEXEC:
                return "/dev/shm"
        except OSError:
            pass
        return os.environ.get("TMPDIR", "/tmp")

    def uml_command(self, guest, links, output):
        number = guest.number
        return [str(self.folder / "linux"), f"mem={self.options.memory}M", "root=/dev/root", "rootfstype=hostfs",
                "rootflags=/", "ro", "quiet", "con=null", "con0=null,fd:2", f"con1=null,fd:{output}",
                f"uml_dir={self.run}/uml/", f"umid=guest{number}", f"init={self.run}/init",
                f"heddle.run={self.run}", f"heddle.guest={number}",
                *(f"vec{nic}:transport=fd,fd={link},depth=128,mac={self.address(number, nic)},mtu={self.options.mtu}"
                  for nic, link in enumerate(links))]

    def qemu_command(self, guest, links, output):
        number = guest.number
        append = ("console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable "
                  f"heddle.run={self.run} heddle.guest={number}")
        shared = "security_model=none,multidevs=remap"
        nics = [word for nic, link in enumerate(links) for word in (
            "-netdev", f"dgram,id=net{nic},local.type=fd,local.str={link}", "-device",
            f"virtio-net-pci,netdev=net{nic},romfile=,host_mtu={self.options.mtu},mac={self.address(number, nic)}")]
        return ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max",
                "-smp", str(self.options.cpus), "-m", f"{self.options.memory}M", "-nodefaults", "-no-user-config",
                "-display", "none", "-no-reboot", "-serial", f"file:{self.run}/console.{number}",
                "-kernel", str(self.folder / "vmlinux"), "-initrd", str(self.folder / "initramfs"), "-append", append,
                "-virtfs", f"local,path=/,mount_tag=root,readonly=on,{shared}",
                "-virtfs", f"local,path={self.run},mount_tag=run,{shared}",
                "-device", "virtio-serial-pci", "-chardev", f"file,id=output,path=/proc/self/fd/{output}",
                "-device", "virtserialport,chardev=output,nr=1", *nics]

    @staticmethod
    def address(number, nic):
        return f"02:00:00:00:{nic + 1:02x}:{number:02x}"

    def loop(self):
        """Runs until every guest has ended; returns the exit code of the run."""
        limit = time.monotonic() + self.options.time_limit
        while any(guest.status is None for guest in self.guests):
            readable = [guest.output for guest in self.guests if guest.output is not None]
            ready, _, _ = select.select(readable, [], [], TICK_SECONDS)
            for guest in self.guests:
                if guest.output in ready:
                    self.pass_on(guest)
            self.obey()
            self.let_go()
            for relay in (network.relay for network in self.networks):
                if relay.poll() is not None:
                    kernels.say(f"the relay between the guests has ended with exit code {relay.returncode}")
                    return BROKEN_EXIT
            for guest in self.guests:
                if guest.status is None and guest.output is None and guest.process.poll() is not None:
                    self.finish(guest)
            if time.monotonic() > limit:
                late = [str(guest.number) for guest in self.guests if guest.status is None]
                kernels.say(f"time limit of {self.options.time_limit:g} s; not finished: guest {', '.join(late)}")
                for number in late:
                    self.show_console(int(number))
                return TIME_LIMIT_EXIT
        return self.first_failure

    def let_go(self):
        if self.went:
            return
        live = [guest for guest in self.guests if guest.status is None and not guest.powered_off]
        if all((self.run / f"ready.{guest.number}").exists() for guest in live):
            (self.run / "go").touch()
            self.went = True

    def pass_on(self, guest):
        data = os.read(guest.output, 65536)
        if not data:
            os.close(guest.output)
            guest.output = None
            data, guest.line = guest.line + (b"\n" if guest.line else b""), b""
        elif len(self.guests) > 1:
            data, newline, rest = (guest.line + data).rpartition(b"\n")
            data, guest.line = data + newline, rest
        if len(self.guests) > 1:
            prefix = f"[{guest.number}] ".encode()
            data = b"".join(prefix + line for line in data.splitlines(keepends=True))
        while data:
            data = data[os.write(sys.stdout.fileno(), data):]

    def finish(self, guest):
        path = self.run / f"status.{guest.number}"
        if guest.powered_off:
            guest.status = 0
        elif path.exists():
            guest.status = int(path.read_text(encoding="ascii"))
        else:
            kernels.say(f"guest {guest.number} ended before its command did (its kernel: exit code "
                        f"{guest.process.returncode})")
            self.show_console(guest.number)
            guest.status = BROKEN_EXIT
        self.first_failure = self.first_failure or guest.status

    def show_console(self, number):
        try:
            lines = (self.run / f"console.{number}").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        for line in lines[-15:]:
            print(f"rdma-vm: console of guest {number}: {line.rstrip()}", file=sys.stderr, flush=True)

    def obey(self):
        """Answers the requests that have come; a request and its answer appear whole, by renaming."""
        for request in sorted((self.run / "control").glob("*.request")):
            answer = self.execute(request.read_text(encoding="utf-8", errors="replace").strip())
            request.unlink()
            temporary = request.with_suffix(".new")
            temporary.write_text(answer + "\n", encoding="utf-8")
            temporary.rename(request.with_suffix(".answer"))

    def execute(self, text):
        words = text.split()
        own = {"power-off": signal.SIGTERM, "freeze": signal.SIGTSTP, "thaw": signal.SIGCONT}  # As holder.cc has it.
        if not words or words[0] not in own:
            return self.ask_network(words)
        if len(words) != 2 or not words[1].isdecimal() or int(words[1]) >= len(self.guests):
            return f"error: {words[0]}: expected the number of a guest, 0 to {len(self.guests) - 1}"
        guest = self.guests[int(words[1])]
        guest.powered_off |= words[0] == "power-off"
        if guest.process.poll() is None:
            guest.process.send_signal(own[words[0]])
        return "ok"

    def ask_network(self, words):
        """[network K] COMMAND…: without a number network 0 is meant."""
        number = 0
        if words[:1] == ["network"]:
            if len(words) < 3 or not words[1].isdecimal() or int(words[1]) >= len(self.networks):
                return f"error: network: expected its number, 0 to {len(self.networks) - 1}, and a command"
            number, words = int(words[1]), words[2:]
        return self.networks[number].ask(" ".join(words))

    def stop(self):
        running = [guest.process for guest in self.guests if guest.process]
        running += [network.relay for network in self.networks if network.relay]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for guest in self.guests:
            if guest.seat is not None:
                guest.seat.release()
        shutil.rmtree(self.run / "uml", ignore_errors=True)
