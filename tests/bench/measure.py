"""Measures keepwatch, the floor and the programs that keepwatch replaces, and writes CSV files.

`tests/bench/run` starts it as the first process of its own namespaces, so its children end with it.
"""

import argparse
import contextlib
import copy
import csv
import ctypes
import ipaddress
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import report

import helper

HERE = Path(__file__).parent
ROOT = Path("/mnt/bench")
STATE_PATH = ROOT / "agent"
SOCKET = STATE_PATH / "keepalived-state-change"
VIP = "169.254.0.5/24"
# The programs of the shell generation.
SHELL_RUNS = ["sh", "awk", "curl", "cut", "date", "grep", "ip", "mkfifo", "ps", "rm", "sleep", "tr"]
# The number of routers whose memory is measured. The Python generation needs 120 MB for each.
FLEET, FLEET_PYTHON = 250, 10
# The number of routers that fail over together. The shell generation starts a process for each event.
FAIL_OVERS, FAIL_OVER_SHELL = (250, 1000), 100
# The numbers of routers on one machine whose cost is compared, the seconds of each measurement, and the maximum rate of
# new namespaces.
GROWTH, WATCHED, CHURN = (10, 50, 250, 1000, 4000), 5, 20
# At most, as each takes minutes.
GROWTH_RUNS = 3
# The number of addresses that are announced together, and the numbers whose times are compared.
ADDRESSES, GROWING_ADDRESSES = 1000, (10, 50, 250, 1000, 4000)
# Turns of that.
ANNOUNCEMENTS = 10
# The numbers of other processes beside conntrackd's helper.
OTHERS = (0, 2000)
# How often the VIPs of those that fail over are added and removed in each run.
TURNS = 2
# Seconds without a report after which none will follow: keepwatch retries after 5 s at most.
SILENCE = 6
# Older generations sometimes hang.
ATTEMPTS = 5


class Candidate:
    """A program to measure."""

    def __init__(self, name, program, installed=None, more=()):
        self.name, self.program, self.more = name, Path(program).resolve(), more
        self.installed = Path(installed).resolve() if installed else self.program
        self.slow = name in ("shell", "python")
        # The shell generation reports nothing before an address event.
        self.reports_at_start = name != "shell"

    def command(self, router, addresses=0):
        log = router.directory / "log"
        if self.name.startswith("floor"):
            command = [self.program, f"/run/netns/{router.namespace}", "ha0", router.conf_dir, SOCKET, router.id]
            if addresses:
                return command + [log, "lan0", str(addresses)]
            return command + {"floor, same job": [log], "floor, prepared": [log, "prepared"]}.get(self.name, [])
        # Two words for each option, the only style that the shell generation accepts.
        command = [self.program, "--router_id", router.id, "--namespace", router.namespace]
        command += ["--monitor_interface", "ha0", "--monitor_cidr", VIP, "--conf_dir", router.conf_dir]
        command += ["--state_path", STATE_PATH, "--pid_file", router.directory / "pid", "--log-file", log]
        return command + (["--foreground", "--active-word", "primary", *self.more] if self.name == "keepwatch" else [])

    def needed(self):
        """Returns the files that it needs to run, or none for the Python generation."""
        if self.name == "python":
            return set()
        programs = [self.program] if not self.slow else [Path(shutil.which(name)).resolve() for name in SHELL_RUNS]
        files = {self.program, *programs}
        for program in programs:
            # ldd prints no path for a static program.
            listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
            files |= {Path(word).resolve() for word in listed.split() if word.startswith("/")}
        return files

    def sizes(self):
        """Returns its bytes on disk, and those including the programs and libraries that it needs."""
        files = self.installed.rglob("*") if self.installed.is_dir() else [self.installed]
        own = sum(file.lstat().st_size for file in files if not file.is_dir())
        return own, sum(file.stat().st_size for file in self.needed()) or own


class Router:
    """A network namespace with an interface `ha0`, and a directory."""

    def __init__(self, number):
        self.id = f"3c2f5c0e-9f0e-4d43-a3b5-{number:012}"
        self.namespace, self.directory = f"qrouter-{self.id}", ROOT / self.id
        self.conf_dir = self.directory / "conf"
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        # The peer is in place of the network, and has no address that would be announced.
        peer = "link set ha0-peer addrgenmode none up"
        self.ip("link add ha0 type veth peer ha0-peer", "link set ha0 up", peer)
        with open("/proc/self/ns/net") as outside, open(f"/run/netns/{self.namespace}") as inside:
            enter(inside)
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            index = socket.if_nametoindex("ha0")
            enter(outside)
        address, prefix_len = VIP.split("/")
        address = socket.inet_aton(address)
        # struct ifaddrmsg, IFA_LOCAL and IFA_ADDRESS.
        body = struct.pack("=BBBBI", socket.AF_INET, int(prefix_len), 0, 0, index)
        body += struct.pack("=HH4sHH4s", 8, 2, address, 8, 1, address)
        # RTM_DELADDR; RTM_NEWADDR with NLM_F_CREATE and NLM_F_EXCL; both with NLM_F_REQUEST and NLM_F_ACK.
        self.requests = [
            struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body for kind, flags in ((21, 0x5), (20, 0x605))
        ]

    def ip(self, *lines):
        subprocess.run(["ip", "-n", self.namespace, "-batch", "-"], input="\n".join(lines), text=True, check=True)

    @contextlib.contextmanager
    def lan(self, addresses):
        """Has an interface with this number of addresses, and no frames of the kernel."""
        ends = [f"link set {end} addrgenmode none up" for end in ("lan0", "lan0-peer")]
        first = ipaddress.IPv4Address("10.0.0.1")
        lines = [f"address add {first + number}/32 dev lan0" for number in range(addresses)]
        self.ip("link add lan0 type veth peer lan0-peer", *ends, *lines)
        try:
            yield
        finally:
            self.ip("link delete lan0")

    def at(self, directory):
        """Returns this router with another directory."""
        other = copy.copy(self)
        other.directory, other.conf_dir = directory / self.id, directory / self.id / "conf"
        return other

    def set_vip(self, present):
        """Adds or removes the VIP. Returns whether that worked."""
        self.socket.send(self.requests[present])
        return struct.unpack_from("=i", self.socket.recv(512), 16)[0] == 0

    def clear(self):
        self.set_vip(False)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.conf_dir.mkdir(parents=True)

    def state(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.conf_dir / "state").read_text()


def enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Agent:
    """The agent, and the reports that it has received."""

    def __init__(self):
        SOCKET.unlink(missing_ok=True)
        # The pipe has room for the first reports of thousands of daemons, which are read after all have been started.
        self.process = subprocess.Popen(
            [sys.executable, HERE / "agent.py", SOCKET], stdout=subprocess.PIPE, pipesize=1 << 20
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""
        while not SOCKET.exists():
            time.sleep(0.01)

    def reports(self, patience):
        """Waits for a report. Returns all new ones, each with its `time.monotonic_ns`."""
        select.select([self.process.stdout], [], [], patience)
        *lines, self.rest = (self.rest + (self.process.stdout.read() or b"")).split(b"\n")
        return [(int(at), report) for at, report in (line.decode().split(" ", 1) for line in lines)]

    def forget(self):
        while self.reports(0):
            pass

    def await_state(self, routers, state, silence=SILENCE):
        """Waits until every router has reported this state, or until no report comes for a while. Returns the time of
        the last report, and the number of missing ones."""
        missing = {f"{router.id} {state}" for router in routers}
        last = heard = time.monotonic_ns()
        while missing and time.monotonic_ns() < heard + silence * 1e9:
            for at, received in self.reports(0.1):
                if received in missing:
                    missing.remove(received)
                    # A report may have waited in the pipe while thousands of daemons were started.
                    last, heard = at, time.monotonic_ns()
        return last, len(missing)


@contextlib.contextmanager
def fleet(candidate, routers):
    """Starts its processes for some routers. Yields them, once each has reported or written its first state, and the
    agent."""
    agent = Agent()
    try:
        for router in routers:
            router.clear()
        daemons = [
            subprocess.Popen(
                candidate.command(router),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for router in routers
        ]
        if candidate.reports_at_start:
            _, missing = agent.await_state(routers, "backup", 60 if candidate.slow else SILENCE)
        else:
            deadline = time.monotonic() + 60
            while any(router.state() != "backup" for router in routers) and time.monotonic() < deadline:
                time.sleep(0.1)
            missing = sum(router.state() != "backup" for router in routers)
            # It listens for events only some time later.
            time.sleep(5)
        if missing:
            raise RuntimeError(f"{candidate.name}: {missing} of {len(routers)} do not start")
        yield daemons, agent
    finally:
        kill_all()


def processes():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and entry != "1"]


def kill_all():
    """Kills all other processes in this PID namespace."""
    while running := processes():
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)


def latency(options, candidate, router, **only):
    """Returns the rows that the measuring program prints. `only` are its numbers that are not as usual."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [options.bench, "--namespace", router.namespace, "--directory", router.directory, "--socket", SOCKET]
    counts = {"starts": 10, "changes": options.changes, "reclaimed": options.changes // 10 or 1}
    counts["loaded"] = 4 * options.changes
    if candidate.slow:
        counts = {"starts": 2, "changes": options.changes // 5 or 1, "reclaimed": 2, "loaded": 0}
        command += ["--slow"] + ([] if candidate.reports_at_start else ["--silent"])
    if only:
        counts |= {"starts": 1, "reclaimed": 0, "loaded": 0} | only
    for name, count in counts.items():
        command += [f"--{name}", str(count)]
    for file in candidate.needed():
        command += ["--needs", file]
    for attempt in range(ATTEMPTS):
        run = command + candidate.command(router, only.get("addresses"))
        done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            return csv.DictReader(done.stdout.splitlines())
        if not candidate.slow:
            break
    raise RuntimeError(f"{candidate.name} fails")


def announcements(options, candidate, router, addresses):
    """Returns a row for each change of the VIP with this number of addresses to announce."""
    with router.lan(addresses):
        rows = latency(options, candidate, router, changes=0, announcements=ANNOUNCEMENTS, addresses=addresses)
        return [row for row in rows if row["phase"] in ("announced", "amid")]


def fail_over(candidate, routers):
    """Returns a row for each change of the VIPs, with attempts and CPU time of each report."""
    silence = 2 if candidate.slow else SILENCE
    with fleet(candidate, routers) as (daemons, agent):
        failed, used, rows = failures(candidate, routers, daemons), cpu(daemons), []
        for turn in range(2 * TURNS):
            present = turn % 2 == 0
            time.sleep(0.5)
            agent.forget()
            began = time.monotonic_ns()
            for router in routers:
                router.set_vip(present)
            last, lost = agent.await_state(routers, "primary" if present else "backup", silence)
            rows.append({"change": "up" if present else "down", "ms": (last - began) / 1e6, "lost": lost})
        reports = len(rows) * len(routers)
        # Of several processes, only the first one's CPU time is available.
        used = "" if candidate.slow else (cpu(daemons) - used) / reports
        if failed is not None:
            failed = (failures(candidate, routers, daemons) - failed) / reports
        return [row | {"failures": failed, "cpu_ms": used} for row in rows]


def cpu(daemons):
    """Returns the scheduler's CPU time in milliseconds."""
    return sum(int(Path(f"/proc/{daemon.pid}/schedstat").read_text().split()[0]) for daemon in daemons) / 1e6


def failures(candidate, routers, daemons):
    """Returns the failed attempts so far, by the status of each keepwatch."""
    if candidate.name != "keepwatch":
        return None
    total = 0
    for router, daemon in zip(routers, daemons):
        log = router.directory / "log"
        before = log.read_text().count("notification_failures=")
        daemon.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while len(parts := log.read_text().split("notification_failures=")) <= before + 1:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{router.id} logs no status")
            time.sleep(0.001)
        total += int(parts[-1].split()[0])
    return total


def growth(candidate, routers):
    """Returns a row with the cost of each router among this number of routers."""
    with fleet(candidate, routers) as (daemons, agent):
        time.sleep(2)
        agent.forget()
        used, began = cpu(daemons), time.monotonic_ns()
        for router in routers:
            router.set_vip(True)
        last, lost = agent.await_state(routers, "primary")
        row = {"ms": (last - began) / 1e6, "lost": lost, "report_cpu_ms": (cpu(daemons) - used) / len(routers)}
        time.sleep(2)
        row["pss_kb"] = memory_of(agent)["Pss"] / len(routers)
        for name, rest in (("idle_cpu_ms", lambda: time.sleep(WATCHED)), ("mounts_cpu_ms", churn)):
            used, began = cpu(daemons), time.monotonic()
            rest()
            row[name] = (cpu(daemons) - used) / (time.monotonic() - began) / len(routers)
        return row


def churn():
    """Creates and deletes network namespaces. Each is a mount, which is an event for every daemon."""
    for turn in range(WATCHED * CHURN):
        subprocess.run(["ip", "netns", "add", f"another-{turn}"], check=True)
        subprocess.run(["ip", "netns", "delete", f"another-{turn}"], check=True)
        time.sleep(1 / CHURN)


def memory(candidate, routers):
    """Returns their total memory in kB, after the VIPs have been added and removed."""
    with fleet(candidate, routers) as (_, agent):
        # One after another, as the shell generation crashes otherwise.
        for present in (True, False):
            for router in routers:
                router.set_vip(present)
                agent.await_state([router], "primary" if present else "backup")
        time.sleep(2)
        return memory_of(agent)


def memory_of(agent):
    """Returns the memory in kB of all processes except the agent."""
    total = {"processes": 0, "Rss": 0, "Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    for pid in processes():
        if pid == agent.process.pid:
            continue
        # A process that ends meanwhile has no file.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            fields = dict(line.split(":") for line in lines)
            total["processes"] += 1
            for name in set(total) - {"processes"}:
                total[name] += int(fields[name].split()[0])
    return total


class Table:
    """A CSV file that grows row by row."""

    def __init__(self, directory, name):
        self.file, self.writer = open(directory / f"{name}.csv", "w"), None  # noqa: SIM115 (open as long as this is)

    def add(self, **row):
        self.writer = self.writer or csv.DictWriter(self.file, row)
        if self.file.tell() == 0:
            self.writer.writeheader()
        self.writer.writerow(row)
        self.file.flush()


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name in ("bench", "floor", "keepwatch", "shell", "python", "raw"):
        parser.add_argument(f"--{name}", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=HERE, help="directory for the files; with another one, docs/benchmarks.md does not change")
    parser.add_argument("--only", choices=report.PARTS, help="measure only this, of keepwatch and the floors, and print it")
    parser.add_argument("--disk", type=Path, help="a directory on a disk's file system, instead of target/bench")
    parser.add_argument("--runs", type=int, default=5, help="turns of each program; of growth at most 3")
    parser.add_argument("--changes", type=int, default=100, help="changes of the VIP in each of them")
    parser.add_argument("--fail-over", type=int, help="as --only fail-over, with this number of routers")
    parser.add_argument("--option", action="append", default=[], help="another option of keepwatch: --option=--no-announce")
    options = parser.parse_args()
    if options.fail_over:
        options.only = "fail-over"
    options.output.mkdir(parents=True, exist_ok=True)
    load, _, _ = os.getloadavg()
    for directory in ("/mnt", "/run/netns"):
        os.makedirs(directory, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
    subprocess.run(["mount", "--make-shared", "/run/netns"], check=True)
    STATE_PATH.mkdir(parents=True)
    candidates = [
        Candidate("floor", options.floor),
        Candidate("floor, same job", options.floor),
        Candidate("floor, prepared", options.floor),
        Candidate("keepwatch", options.keepwatch, more=options.option),
    ]
    floor, *_, keepwatch = candidates
    disk = options.disk or options.raw.resolve()
    routers = []

    def some(count):
        routers.extend(Router(number) for number in range(len(routers), count))
        return routers[:count]

    def is_wanted(part):
        return options.only in (None, part)

    def runs(what, most=options.runs):
        count = min(options.runs, most)
        for run in range(1, count + 1):
            print(f"run {run} of {count}: {what}", file=sys.stderr)
            yield run

    counts = [options.fail_over] if options.fail_over else FAIL_OVERS
    fail_overs = [(count, (floor, keepwatch)) for count in counts]
    if not options.only:
        script = "bin/neutron-keepalived-state-change"
        shell = Candidate("shell", options.shell / script)
        candidates += [shell, Candidate("python", options.python / script, options.python)]
        fail_overs.append((FAIL_OVER_SHELL, (shell,)))
    if is_wanted("changes"):
        table = Table(options.raw, "changes")
        for run in runs("changes of one router"):
            for candidate in candidates:
                for row in latency(options, candidate, some(1)[0]):
                    table.add(candidate=candidate.name, run=run, **row)
                for row in latency(options, candidate, some(1)[0].at(disk), starts=1):
                    if row["phase"] == "change":
                        table.add(candidate=candidate.name, run=run, **row | {"phase": "disk"})
        shutil.rmtree(some(1)[0].at(disk).directory)
    if is_wanted("announcements"):
        table = Table(options.raw, "announcements")
        for run in runs(f"announcements of {ADDRESSES} addresses"):
            for candidate in (floor, keepwatch):
                for row in announcements(options, candidate, some(1)[0], ADDRESSES):
                    table.add(candidate=candidate.name, run=run, **row)
    if is_wanted("memory"):
        table = Table(options.raw, "memory")
        for candidate in candidates:
            own, needed = candidate.sizes()
            count = FLEET_PYTHON if candidate.name == "python" else FLEET
            print(f"memory of {count} routers: {candidate.name}", file=sys.stderr)
            total = memory(candidate, some(count))
            table.add(candidate=candidate.name, own=own, needed=needed, routers=count, **total)
    if is_wanted("fail-over"):
        table = Table(options.raw, "fail-over")
        for count, those in fail_overs:
            for run in runs(f"{count} routers fail over"):
                for candidate in those:
                    for row in fail_over(candidate, some(count)):
                        table.add(candidate=candidate.name, routers=count, run=run, **row)
    if is_wanted("conntrackd"):
        table = Table(options.raw, "conntrackd")
        for run in runs("commands of conntrackd"):
            for row in helper.commands(keepwatch.program, some(1)[0].namespace, OTHERS):
                table.add(candidate=keepwatch.name, run=run, **row)
            kill_all()
    if is_wanted("growth"):
        table = Table(options.raw, "growth-announcements")
        for count in GROWING_ADDRESSES:
            for run in runs(f"announcements of {count} addresses", GROWTH_RUNS):
                for candidate in (floor, keepwatch):
                    for row in announcements(options, candidate, some(1)[0], count):
                        table.add(candidate=candidate.name, addresses=count, run=run, **row)
        table = Table(options.raw, "growth")
        for count in GROWTH:
            for run in runs(f"growth: {count} routers", GROWTH_RUNS):
                for candidate in (floor, keepwatch):
                    table.add(candidate=candidate.name, routers=count, run=run, **growth(candidate, some(count)))
        report.publish_growth(options.raw, options.output, load)
    if options.only in report.FIGURES:
        report.print_only(options.raw, options.only)
    elif not options.only:
        paper = Path("docs/benchmarks.md") if options.output == HERE else None
        report.publish(options.raw, options.output, paper, load)


main()
