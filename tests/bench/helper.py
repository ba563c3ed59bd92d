"""Measures what a command of conntrackd costs, one that fails and one that succeeds, beside other processes."""

import datetime
import os
import pathlib
import re
import subprocess
import tempfile
import time

PATIENCE = 60
# Pairs of changes of the VIP.
CHANGES = 20
ENDED = re.compile(r"^(\S+ \S+) .* Helper\(Conntrackd, Ended\(")


def helper_of(daemon):
    [child] = pathlib.Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    return int(child)


def cpu(pid):
    """Returns the CPU time of a process and its children that have ended, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def ends(log):
    """Returns the times at which commands have ended."""
    matches = (ENDED.match(line) for line in log.read_text(errors="replace").splitlines())
    return [datetime.datetime.fromisoformat(match[1]).timestamp() for match in matches if match]


def wait(log, count):
    """Waits for this many ends. The log is polled, as a pause is needed between changes anyway."""
    deadline = time.monotonic() + PATIENCE
    while len(found := ends(log)) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} ends of commands did not come: {log.read_text()[-1000:]}")
        time.sleep(0.01)
    return found


def measure(program, namespace, status):
    """Returns the milliseconds of a command with this exit code, from the end of the one before it to its own end, and those
    of CPU time of the helper with its programs: the means of all commands."""
    with tempfile.TemporaryDirectory(prefix="keepwatch-") as directory:
        directory = pathlib.Path(directory)
        log, conntrackd = directory / "log", directory / "conntrackd"
        conntrackd.write_text(f"#!/bin/sh\nexit {status}\n")
        conntrackd.chmod(0o755)
        for file in (log, directory / "conntrackd.conf"):
            file.touch()
        command = [program, "--foreground", "--debug", f"--namespace={namespace}", "--router_id=bench", f"--log-file={log}"]
        command += ["--monitor_interface=ha0", "--monitor_cidr=169.254.0.5/24", f"--conf_dir={directory}", "--no-announce"]
        environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
        daemon = subprocess.Popen([*command, "--enable_conntrackd"], env=environment)
        try:
            count = len(wait(log, 2))
            helper = helper_of(daemon.pid)
            before, took = cpu(helper), []
            for _ in range(CHANGES):
                # Four commands for the active state, two for backup. Failed ones are repeated half a second later.
                for action, commands in (("add", 4), ("del", 2)):
                    vip = ["address", action, "169.254.0.5/24", "dev", "ha0"]
                    subprocess.run(["ip", "-n", namespace, *vip], check=True)
                    found = wait(log, count + commands)
                    took.append((found[count + commands - 1] - found[count]) / (commands - 1))
                    count = len(found)
            return 1e3 * sum(took) / len(took), 1e3 * (cpu(helper) - before) / (6 * CHANGES)
        finally:
            daemon.terminate()
            daemon.wait()


def commands(program, namespace, counts):
    """Returns a row for each number of other processes and each exit code. Leaves the processes."""
    rows, others = [], 0
    for count in counts:
        for _ in range(count - others):
            subprocess.Popen(["sleep", "infinity"])
        others = count
        for status in (0, 1):
            took, used = measure(program, namespace, status)
            rows.append({"others": count, "exit_code": status, "ms": took, "cpu_ms": used})
    return rows
