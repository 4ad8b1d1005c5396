"""A network of a process's own: what it starts listens on the ports that manifests and documents name."""
import ctypes
import fcntl
import os
import pathlib
import socket
import struct

NEW_USER, NEW_NETWORK, NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000
RECURSIVE, PRIVATE = 1 << 14, 1 << 18
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x1 | 0x40
STATE = {"entered": False, "why_not": None}


def enter():
    """Moves this process, which has one thread, into network and mounts of its own. Says why that cannot be, or None."""
    if not STATE["entered"]:
        STATE["entered"], STATE["why_not"] = True, attempt()
    return STATE["why_not"]


def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_NETWORK | NEW_MOUNTS | (0 if user == 0 else NEW_USER)) != 0:
        return f"a network namespace cannot be made here: {os.strerror(ctypes.get_errno())}"
    if user != 0:
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if libc.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None) != 0:
        return f"mounts of our own cannot be made here: {os.strerror(ctypes.get_errno())}"
    with socket.socket() as any_socket:  # ip link set lo up
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))
    return None
