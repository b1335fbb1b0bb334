"""Debian's kernel package for QEMU: the plain kernel image out of vmlinuz, an initramfs with a guest's modules."""
import lzma
import os
import pathlib
import re
import shutil
import stat

# In this order, each after its dependencies. crc32 is requested by algorithm, not by name, so no module depends on it.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "virtio_net", "virtio_console", "crc32_generic", "rdma_rxe", "rdma_ucm",
           "sch_netem", "veth")
XZ = b"\xfd7zXZ\x00"


def write_kernel(vmlinuz, target):
    """QEMU starts the ELF file at once; vmlinuz would take seconds of emulated time to unpack itself."""
    data = vmlinuz.read_bytes()
    offset = data.find(XZ)
    if offset < 0:
        raise ValueError(f"{vmlinuz.name} has no xz stream")
    image = lzma.LZMADecompressor().decompress(data[offset:])
    if not image.startswith(b"\x7fELF"):
        raise ValueError(f"{vmlinuz.name} does not unpack to an ELF file")
    target.write_bytes(image)


def read_module(path):
    data = path.read_bytes()
    return lzma.decompress(data) if data.startswith(XZ) else data


def dependencies(data):
    """What the module's own information says it needs."""
    found = re.search(rb"\0depends=([^\0]*)\0", data)
    return [name for name in found[1].decode("ascii").split(",") if name] if found else []


def module_order(tree):
    """[(file name, content)], each after the modules that it needs. Modules in the kernel itself have no file."""
    files = {path.name.split(".")[0].replace("-", "_"): path for path in pathlib.Path(tree).rglob("*.ko*")}
    order, done = [], set()

    def add(name):
        if name in done or name not in files:
            return
        done.add(name)
        data = read_module(files[name])
        for needed in dependencies(data):
            add(needed.replace("-", "_"))
        order.append((f"{name}.ko", data))

    for name in MODULES:
        add(name)
    if "rdma_rxe" not in done:
        raise ValueError("the kernel has no module rdma_rxe")
    return order


def entry(name, mode, data=b""):
    """One member of a cpio archive of the kind newc."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def write_archive(tree, init, target):
    busybox = shutil.which("busybox")
    modules = module_order(tree)
    with open(target, "wb") as file:
        for folder in ("bin", "modules"):
            file.write(entry(folder, stat.S_IFDIR | 0o755))
        file.write(entry("bin/busybox", stat.S_IFREG | 0o755, pathlib.Path(os.path.realpath(busybox)).read_bytes()))
        file.write(entry("bin/sh", stat.S_IFLNK | 0o777, b"busybox"))
        file.write(entry("init", stat.S_IFREG | 0o755, init.read_bytes()))
        for name, data in modules:
            file.write(entry(f"modules/{name}", stat.S_IFREG | 0o644, data))
        order = "".join(f"{name}\n" for name, _ in modules)
        file.write(entry("modules/order", stat.S_IFREG | 0o644, order.encode()))
        file.write(entry("TRAILER!!!", 0))
