"""A hook of one instance of keepwatch@.service that attacks another instance, and root through its own root hook.

Called as a hook; lists its successes in a file in its own directory.
"""

import glob
import os
import socket
from pathlib import Path

OWN, INSTANCE, OTHER = "/run/keepwatch-hook/wan", "/run/keepwatch/wan", "/run/keepwatch/lan"
SOCKET = "/run/keepwatch-follow/socket"
done = []


def attempt(what, action):
    try:
        action()
        done.append(what)
    except (OSError, AssertionError):
        pass


def ask(word, path=SOCKET):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(path)
        try:
            connection.sendall(word)
        except BrokenPipeError:
            pass
        assert connection.recv(16) == b"0"


def leave(path):
    Path(path + "/intruder").touch()


def try_process(pid):
    attempt(f"enter another by process {pid}", lambda: leave(f"/proc/{pid}/root{OTHER}"))
    attempt(f"read the memory of process {pid}", lambda: open(f"/proc/{pid}/mem", "rb").close())
    attempt(f"send a signal to process {pid}", lambda: os.kill(pid, 0))


def try_word(word):
    attempt(f"have root take {word[:20]}", lambda: ask(word))


attempt("write to another's directory", lambda: leave(OTHER))
# The node exporter of the host would hang at a FIFO.
os.mkfifo(OWN + "/fifo")
attempt("replace the metrics", lambda: os.rename(OWN + "/fifo", INSTANCE + "/metrics.prom"))
attempt("remove the state", lambda: os.unlink(INSTANCE + "/state"))
attempt("write to the instance's directory", lambda: leave(INSTANCE))
if "CapPrm:\t0000000000000000\n" not in Path("/proc/self/status").read_text():
    done.append("have a capability")
# /proc hides other users' processes, so the pids come from the test.
for pid in map(int, Path("/run/pids").read_text().split()):
    try_process(pid)
for path in glob.glob("/run/keepwatch-follow/*"):
    if path != SOCKET:
        done.append("see " + path)
attempt("use another's socket", lambda: ask(b"MASTER\n", "/run/keepwatch-follow/lan/socket"))
attempt("remove the socket", lambda: os.unlink(SOCKET))
attempt("replace the socket", lambda: os.rename(OWN + "/fifo", SOCKET))
attempt("remove its directory", lambda: os.rename(OWN, OWN + "2"))
# Root runs only the hook, for one of three words.
for word in (b"STOP", b"MASTER 0", b"MASTER\nx", b"BACKUP;id", b"$(id)", b"../../tmp/x", b"\0", b"", b"x" * 100_000):
    try_word(word)
# Files with names of earlier versions, and in possible working directories of root's hook.
os.symlink("/etc/cron.hourly", OWN + "/following")
os.symlink("/dev/kmsg", OWN + "/follow")
os.mkfifo(OWN + "/.follow")
for module in ("json.py", "sitecustomize.py", "strict.pm", "warnings.pm"):
    with open(f"{OWN}/{module}", "w") as file:
        file.write("#!/bin/sh\ntouch /run/intruder\n")
attempt("have root run its hook", lambda: ask(b"MASTER"))
with open(OWN + "/.done", "w") as file:
    file.write("\n".join(done) + "\n")
os.rename(OWN + "/.done", OWN + "/done")
