"""The guest kernels and programs: built or unpacked once, then kept in ${HEDDLE_CACHE:-~/.cache/heddle}/rdma-vm.

A folder in the cache is named by its kind and a hash of its inputs, and is complete if it exists, because it is made
under another name and renamed. A lock excludes a second builder. Each kernel is booted once after it was made; the
folder's file `boots` or `fails` keeps the result for later calls.
"""
import contextlib
import fcntl
import glob
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time

from vm import initramfs, processes

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path("/usr/src/linux-source-6.12.tar.xz")
# Raised when the steps below change in a way that their inputs do not show.
RECIPE = 1
REGISTERS, MORE_REGISTERS = (f"DEFINE_LONGS(HOST_FP_SIZE, {size});" for size in (2696, 16384))
KINDS = ("uml", "qemu")
# What the guests' kernel is compiled from, below the source's own folder: a fifth of the whole. Kconfig's and
# make's files are read in all parts.
READ = ("Kconfig*", "Makefile*", "Kbuild*")
COMPILED = ("arch/um", "arch/x86", "block", "certs", "crypto", "drivers/base", "drivers/char", "drivers/dma-buf",
            "drivers/infiniband/core", "drivers/infiniband/sw", "drivers/net/loopback.c", "drivers/net/veth.c",
            "drivers/pci", "drivers/tty", "drivers/virtio", "fs", "include", "init", "io_uring", "ipc", "kernel", "lib",
            "mm", "net", "scripts", "security", "tools/include", "tools/scripts", "usr", "virt")
LOCK_SECONDS = 1800


class Unavailable(Exception):
    """This machine cannot have that kernel; the text has the reason in one line."""


def say(text):
    print(f"rdma-vm: {text}", file=sys.stderr, flush=True)


def cache():
    root = os.environ.get("HEDDLE_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "heddle")
    folder = pathlib.Path(root).absolute() / "rdma-vm"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*parts):
    whole = hashlib.sha256()
    for part in (RECIPE, *parts):
        data = part if isinstance(part, bytes) else str(part).encode()
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:12]


@contextlib.contextmanager
def lock(name):
    """One builder at a time; the lock goes with its holder."""
    with open(cache() / f"{name}.lock", "w", encoding="ascii") as file:
        began = None
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if began is None:
                    began = time.monotonic()
                    say(f"another process is making {name}; waiting for it")
                if time.monotonic() - began > LOCK_SECONDS:
                    raise Unavailable(f"{file.name} is still locked after {LOCK_SECONDS} s") from None
                time.sleep(0.2)
        yield


def make_once(name, announcement, make):
    """The folder `name` of the cache; `make(folder, log)` fills it when it is not there. Returns its path."""
    folder = cache() / name
    if folder.is_dir():
        return folder
    with lock(name):
        if folder.is_dir():
            return folder
        log_path = cache() / f"{name}.log"
        if announcement:
            say(f"{announcement}; log: {log_path}")
        began = time.monotonic()
        new = cache() / f"{name}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            with open(log_path, "wb") as log:
                make(new, log)
            os.replace(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        if announcement:
            say(f"done in {time.monotonic() - began:.0f} s")
    return folder


def step(command, log, what, **options):
    code = processes.run_group([str(word) for word in command], log, **options)
    if code != 0:
        raise Unavailable(f"{what} failed with exit code {code}; see {log.name}")


def need(programs, packages):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise Unavailable(f"{', '.join(missing)} not found; scripts/install-dependencies installs {packages}")


def program(name, shared=False):
    """Path of a program of this folder, compiled from NAME.cc; or of the shared library."""
    source = HERE / f"{name}.cc"
    options = ["-fPIC", "-shared"] if shared else []

    def make(folder, log):
        need(["g++"], "build-essential")
        compiler = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra"]
        step([*compiler, *options, "-o", folder / name, source], log, f"compiling {source.name}")

    return make_once(f"{name}-{digest(source.read_bytes(), *options)}", None, make) / name


def guest_clock(run):
    """What makes a guest's programs read the clock without its kernel (guest_clock.cc): environment variables, none
    where the processor's counter is no clock. The library goes into the run's folder, which all guests see."""
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").partition("\nflags")[2]
    if not {"constant_tsc", "nonstop_tsc"} <= set(flags.partition("\n")[0].split()):
        return {}
    try:
        rate = subprocess.run([program("guest_clock")], capture_output=True, text=True, check=True, timeout=20).stdout
    except subprocess.SubprocessError as error:
        raise Unavailable(f"the processor's counter cannot be measured: {error}") from error
    shutil.copy(program("guest_clock", shared=True), run / "guest_clock.so")
    return {"LD_PRELOAD": f"{run}/guest_clock.so", "HEDDLE_TICKS_PER_SECOND": rate.strip()}


def uml_options():
    lines = (HERE / "uml.config").read_text(encoding="ascii").splitlines()
    return [word for line in lines if not line.startswith("#") for word in line.split()]


def make_room_for_registers(source):
    """UML 6.12 has 2696 bytes for a processor's vector registers, and reads that many from the host: with AMX
    the host has 11008, and no program starts. A larger buffer does no harm."""
    header = source / "arch/x86/um/user-offsets.c"
    text = header.read_text(encoding="utf-8")
    if text.count(REGISTERS) != 1:
        raise Unavailable(f"{header.name} of this source does not say {REGISTERS}")
    header.write_text(text.replace(REGISTERS, MORE_REGISTERS), encoding="utf-8")


def make_uml(folder, log):
    need(["gcc", "make", "flex", "bison", "bc", "xz"], "what the kernel is built with")
    source, build = folder / "source", folder / "build"
    source.mkdir()
    build.mkdir()
    top = SOURCE.name.removesuffix(".tar.xz")
    members = [f"{top}/{part}" for part in COMPILED] + [f"{top}/*{name}" for name in READ]
    # The archive has blocks, which xz unpacks side by side.
    step(["tar", "xf", SOURCE, "--use-compress-program=xz -dT0", "-C", source, "--strip-components=1", "--wildcards",
          *members], log, "unpacking the source")
    make_room_for_registers(source)
    make = ["make", "-s", "-C", source, "ARCH=um", f"O={build}"]
    wanted = uml_options()
    with open(build / "wanted", "w", encoding="ascii") as config:
        config.writelines(f"CONFIG_{option}=y\n" for option in wanted)
        # Interrupts keep the registers on the stack.
        config.write("CONFIG_KERNEL_STACK_ORDER=4\n")
        config.write('CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID=1234\nCONFIG_CON_ZERO_CHAN="null"\nCONFIG_CON_CHAN="null"\n'
                     'CONFIG_SSL_CHAN="null"\n')
    step([*make, f"KCONFIG_ALLCONFIG={build}/wanted", "allnoconfig"], log, "make allnoconfig")
    have = set(re.findall(r"^CONFIG_(\w+)=y$", (build / ".config").read_text(encoding="ascii"), re.MULTILINE))
    lost = [option for option in wanted if option not in have]
    if lost:
        raise Unavailable(f"the kernel's configuration does not accept {' '.join(lost)}; see scripts/vm/uml.config")
    step([*make, f"-j{os.cpu_count()}", "linux"], log, "building the kernel")
    step(["strip", "-o", folder / "linux", build / "linux"], log, "strip")
    shutil.copy(build / ".config", folder / "config")
    shutil.rmtree(source)
    shutil.rmtree(build)


def uml():
    """Folder with `linux`, the User-Mode Linux kernel."""
    if platform.machine() != "x86_64":
        raise Unavailable(f"the recipe is for x86_64, this is {platform.machine()}")
    configured = digest("uml", (HERE / "uml.config").read_bytes(), MORE_REGISTERS)
    if not SOURCE.exists():
        built = sorted(glob.glob(str(cache() / f"uml-{configured}-????????????")), key=os.path.getmtime)
        if built:
            return pathlib.Path(built[-1])
        raise Unavailable(f"{SOURCE} is not there; scripts/install-dependencies installs linux-source-6.12")
    # The package's version by the date of its files, without calling dpkg each time.
    status = SOURCE.stat()
    name = f"uml-{configured}-{digest(status.st_size, int(status.st_mtime))}"
    return make_once(name, "building the guest kernel (User-Mode Linux 6.12), once, minutes", make_uml)


def make_qemu(folder, log):
    need(["apt-get", "apt-cache", "dpkg", "busybox"], "busybox-static")
    known = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=False,
                           env={**os.environ, "LC_ALL": "C"})
    package = re.search(r"Depends: (linux-image-6\S+)", known.stdout)
    if not package:
        raise Unavailable("apt knows no package linux-image-amd64; `apt-get update` may help")
    parts = folder / "package"
    parts.mkdir()
    step(["apt-get", "download", "-q", package[1]], log, f"apt-get download {package[1]}", cwd=parts)
    archive = next(parts.glob("*.deb"))
    step(["dpkg", "-x", archive, parts], log, f"unpacking {archive.name}")
    version = package[1].removeprefix("linux-image-")
    try:
        initramfs.write_kernel(parts / "boot" / f"vmlinuz-{version}", folder / "vmlinux")
        initramfs.write_archive(parts / "lib/modules" / version, HERE / "qemu_init", folder / "initramfs")
    except (OSError, ValueError) as error:
        raise Unavailable(f"{package[1]}: {error}") from error
    shutil.rmtree(parts)


def qemu():
    """Folder with `vmlinux` and `initramfs`, Debian's stock kernel for QEMU."""
    need(["qemu-system-x86_64"], "qemu-system-x86")
    name = f"qemu-{digest('qemu', (HERE / 'qemu_init').read_bytes(), (HERE / 'initramfs.py').read_bytes())}"
    return make_once(name, "unpacking Debian's stock kernel for QEMU, some seconds, once", make_qemu)


def choose(kind, boots):
    """(kind, folder) of the kernel to use: `kind`, or with None the first that boots on this machine.

    `boots(kind, folder)` tries one and returns what is wrong, None when nothing is.
    """
    reasons = []
    for candidate in [kind] if kind else KINDS:
        try:
            folder = {"uml": uml, "qemu": qemu}[candidate]()
            check(candidate, folder, boots)
            if reasons:
                say(f"using {candidate}, because {'; '.join(reasons)}")
            return candidate, folder
        except Unavailable as error:
            reasons.append(f"{candidate}: {error}")
    raise Unavailable("; ".join(reasons))


def check(kind, folder, boots):
    """A failure is kept for this machine's running kernel, and tried again after a day."""
    good, bad = folder / "boots", folder / f"fails-{platform.release()}"
    if good.exists():
        return
    with lock(f"{folder.name}.boot"):
        if good.exists():
            return
        if bad.exists() and time.time() - bad.stat().st_mtime < 86400:
            raise Unavailable(bad.read_text(encoding="utf-8").strip())
        problem = boots(kind, folder) and boots(kind, folder)  # Try once more, because the machine may have been busy.
        if problem:
            bad.write_text(problem + "\n", encoding="utf-8")
            raise Unavailable(problem)
        good.touch()
