"""The machine's own place on the guests' network (--host): a tap that lives as long as its descriptor."""
import fcntl
import os
import struct
import subprocess

from vm import kernels

ADDRESS, NETWORK = "10.9.0.254", "10.9.0.0/24"
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def run(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def refuse_known_network():
    """Refuses addresses that the machine can reach already, because the tap would hide them."""
    routes = run("-4", "route", "show", "match", NETWORK) + run("-4", "route", "show", "root", NETWORK)
    known = [line.strip() for line in routes.splitlines() if not line.startswith("default")]
    if known:
        raise OSError(f"this machine has a route to the guests' network {NETWORK}: {known[0]}")


def attach(mtu):
    """A descriptor of a new interface of the machine that is up and has ADDRESS.

    Its name and address are fixed: a second run at the same time is refused.
    """
    descriptor = None
    try:
        refuse_known_network()
        descriptor = os.open("/dev/net/tun", os.O_RDWR)
        made = fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", b"heddlevm", _IFF_TAP | _IFF_NO_PI))
        name = made[:16].rstrip(b"\0").decode("ascii")
        for words in (["link", "set", name, "mtu", str(mtu), "up"], ["address", "add", f"{ADDRESS}/24", "dev", name]):
            run(*words)
        return descriptor
    except (OSError, subprocess.CalledProcessError) as error:
        if descriptor is not None:
            os.close(descriptor)
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        raise kernels.Unavailable(f"--host: no tap device: {reason} (it needs root, and one run at a time)") from error
