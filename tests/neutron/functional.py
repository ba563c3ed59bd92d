"""Runs functional tests of Neutron, as the agent's user, and prints a line for each.

Usage: functional.py PROGRAM [short | TEST...]

The tests are those of `tests.txt` beside this file: all of them, the short choice or those named.
`results.json` has the results and is written after each test. The exit code is 0 only if each test
passed or differs as expected. A skip counts as a failure unless the kernel is the reason, as Neutron's
tests skip when they fail to see the state of a router. With Neutron's own program that is its own fault.
"""

import collections
import datetime
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import time
import traceback
import unittest

# The tests log to standard output and standard error, as do their children.
LINES = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(os.open("logs/output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 1)
os.dup2(1, 2)

from neutron_lib.plugins.ml2 import ovs_constants

# Open vSwitch's data path is in user space. The tests read this when they are imported.
ovs_constants.OVS_DATAPATH_SYSTEM = ovs_constants.OVS_DATAPATH_NETDEV

import neutron.tests.functional  # noqa: F401 (puts eventlet in place)
import testtools
from neutron.agent.linux import utils
from neutron.conf.agent import common as agent_options
from oslo_config import cfg
from oslo_privsep import priv_context

PACKAGE = "neutron.tests.functional.agent.l3"
# Every test of these must be in the list.
COMPLETE = ("test_ha_router", "test_keepalived_state_change")
MONITOR = "neutron-keepalived-state-change"
VERSIONS = {"keepwatch": "keepwatch ", "neutron": f"{MONITOR} 26."}
# The exit code of rootwrap for a command that no filter allows.
UNAUTHORIZED = 99
# Features that this kernel may lack, and how a test reports that.
KERNEL = {
    "no such setting for each network namespace": re.compile("This kernel doesn't support"),
    "no police action of tc": re.compile("'tc', 'filter'.*Failed to load TC action module", re.DOTALL),
}
# An intended difference: keepwatch does not start with an invalid CIDR.
REFUSED = re.compile(r"Exit code: 2;.*'--monitor_cidr=failed_IP_address'", re.DOTALL)


def stop(why):
    """Prints an error and exits."""
    LINES.write(f"{why}\n")
    os._exit(1)


def listed():
    """Returns the tests of the list, each with its marks."""
    with open("tests.txt") as file:
        lines = (line.partition("#")[0].split() for line in file)
        return {words[0]: set(words[1:]) for words in lines if words}


def suite_of(name):
    """Loads a test by its name in the list, or all of a module."""
    return unittest.TestLoader().loadTestsFromName(f"{PACKAGE}.{name}")


def names_in(suite):
    """Yields the names of all tests in a suite, as in the list."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names_in(test)
        else:
            yield test.id().removeprefix(PACKAGE + ".")


def processes():
    """Returns the command lines of all processes except zombies, by pid and start time."""
    found = {}
    for directory in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{directory}/stat") as stat, open(f"{directory}/cmdline") as cmdline:
                started = stat.read().rpartition(")")[2].split()[19]
                if words := cmdline.read().rstrip("\0").split("\0")[:40]:
                    found[(directory, started)] = words
        except OSError:
            pass  # It ended meanwhile.
    return {key: words for key, words in found.items() if words != [""]}


def is_monitor(words):
    """Whether this is the monitor of a router, or one of its children.

    The whole command line of Neutron's own monitor is one word.
    """
    return "--monitor_cidr=" in " ".join(words)


def is_helper(words):
    """Whether this process runs commands for the agent as root. It stays for later tests."""
    return any("rootwrap" in word or "privsep-helper" in word for word in words)


def reports(test):
    """Returns the number of monitors that a test has started, and the milliseconds until the agent handled
    the first report of each, or None for a missing report.

    Only routers with one monitor in the test are timed, as the log does not name the sender.
    """
    started, answered = collections.defaultdict(list), collections.defaultdict(list)
    stamp = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) ")
    with open(f"logs/dsvm-functional-logs/{PACKAGE}.{test}.txt") as log:
        for line in log:
            if not (at := stamp.match(line)):
                continue
            at = datetime.datetime.fromisoformat(at[1])
            if "Running command" in line and f"'{MONITOR}'" in line:
                started[re.search(r"--router_id=([^']*)", line)[1]].append(at)
            elif received := re.search(r"Handling notification for router ([^,]*),", line):
                answered[received[1]].append(at)
    times = []
    for router, starts in started.items():
        if len(starts) == 1:
            delays = [at - starts[0] for at in answered[router]]
            times.append(min(delays) / datetime.timedelta(milliseconds=1) if delays else None)
    return sum(map(len, started.values())), times


def judge(result, marks, program):
    """Returns the verdict on a test, and the reason."""
    refused = program == "keepwatch" and "refused" in marks
    if result.errors or result.failures or result.unexpectedSuccesses:
        text = "\n".join(text for _, text in [*result.errors, *result.failures])
        if refused and len(result.errors) == 1 and not result.failures and REFUSED.search(text):
            return "differs", "exit code 2, as the CIDR is invalid"
        return "FAILED", text
    if result.skip_reasons:
        reason = "; ".join(result.skip_reasons)
        lacking = [what for what, message in KERNEL.items() if message.search(reason)]
        if "kernel" in marks and lacking:
            return "kernel", lacking[0]
        if program == "neutron" and "was marked as unstable" in reason:
            return "unstable", reason
        return "FAILED", f"skipped: {reason}"
    if result.testsRun != 1:
        return "FAILED", f"{result.testsRun} tests run"
    if refused:
        return "FAILED", "passed, while it should differ"
    return "ok", ""


def run(name, marks, program):
    """Runs one test."""
    before = processes()
    result = testtools.TestResult()
    began = time.monotonic()
    try:
        suite_of(name).run(result)
    except Exception:  # noqa: BLE001 (the next test runs after any error)
        result.errors.append((name, traceback.format_exc()))
    seconds = time.monotonic() - began
    time.sleep(0.5)
    left = {key: words for key, words in processes().items() if key not in before and not is_helper(words)}
    verdict, why = judge(result, marks, program)
    try:
        monitors, times = reports(name)
    except OSError as error:
        monitors, times, verdict, why = 0, [], "FAILED", why or str(error)
    others = collections.Counter(os.path.basename(words[0]) for words in left.values() if not is_monitor(words))
    return {
        "test": name,
        "verdict": verdict,
        "why": why,
        "seconds": round(seconds, 1),
        "monitors": monitors,
        "reports": times,
        "left": sum(map(is_monitor, left.values())),
        "others left": others,
    }


def print_line(program, outcome):
    """Prints the line of a test."""
    times = " ".join("-" if each is None else f"{each:.0f}" for each in outcome["reports"])
    why = outcome["why"].strip().splitlines()
    line = f"{program:10}{outcome['verdict']:8}{outcome['seconds']:6.1f} s  {outcome['test']}"
    line += f"  first report after ms: {times}" if times else ""
    line += f"  processes of the monitor left: {outcome['left']}" if outcome["left"] else ""
    LINES.write(line + (f"\n{'':18}{why[-1]}" if why else "") + "\n")


def rootwrap(*command):
    """Runs a command like the agent. Returns its exit code and standard output."""
    words = [*shlex.split(os.environ["OS_ROOTWRAP_CMD"]), *command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def check_world(program):
    """Checks that sudo and rootwrap allow the agent only what they should, and that it finds the program under test."""
    if subprocess.run(["sudo", "-n", "id"], check=False).returncode == 0:
        stop("sudo lets the agent do more than rootwrap")
    for command in (["id"], ["kill", "-9", "1"]):
        if rootwrap(*command)[0] != UNAUTHORIZED:
            stop(f"rootwrap lets through {command}")
    tagged = ["env", "PROCESS_TAG=none", MONITOR, "--version"]
    rootwrap("ip", "netns", "add", "none")
    found = [rootwrap(*tagged), rootwrap("ip", "netns", "exec", "none", *tagged)]
    rootwrap("ip", "netns", "delete", "none")
    for code, version in found:
        if code or not version.startswith(VERSIONS[program]):
            stop(f"the agent finds another monitor: {code} {version!r}")
    LINES.write(f"{program:10}the agent's monitor is {version.strip()}\n")


def main():
    program, *wanted = sys.argv[1:]
    marks = listed()
    known = {name for module in COMPLETE for name in names_in(suite_of(module))}
    if unlisted := known - set(marks):
        stop(f"not in the list: {unlisted}")
    if wanted == ["short"]:
        wanted = [name for name in marks if "short" in marks[name]]
    wanted = wanted or list(marks)

    check_world(program)
    # As in the agent's configuration. Most tests set this themselves, from the same variables.
    sudo, daemon = os.environ["OS_ROOTWRAP_CMD"], os.environ["OS_ROOTWRAP_DAEMON_CMD"]
    cfg.set_defaults(agent_options.ROOT_HELPER_OPTS, root_helper=sudo, root_helper_daemon=daemon)
    priv_context.init(root_helper=shlex.split(sudo))
    # Otherwise the first test would wait for rootwrap's daemon to start.
    agent_options.register_root_helper(cfg.CONF)
    utils.execute(["ip", "netns", "list"], run_as_root=True)

    outcomes = []
    for name in wanted:
        outcomes.append(run(name, marks.get(name, set()), program))
        print_line(program, outcomes[-1])
        with open("results.json", "w") as file:
            json.dump(outcomes, file, indent=1)
    counts = collections.Counter(outcome["verdict"] for outcome in outcomes)
    LINES.write(f"{program:10}{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}\n")
    os._exit(1 if counts["FAILED"] or len(outcomes) != len(wanted) else 0)


try:
    main()
except Exception:  # noqa: BLE001 (standard error is not seen)
    stop(traceback.format_exc())
