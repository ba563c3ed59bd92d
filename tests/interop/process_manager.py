"""Starts, watches and stops the monitors of routers as Neutron's L3 agent does.

Usage: process_manager.py CONFIG_FILE ROUTER_ID...

A router is the agent's own class, with the parts that its monitor needs: the port `ha-aaaaaaaa-aa` in
the namespace `qrouter-ROUTER_ID`, and VRID 5. The agent becomes root by its configuration. Commands
come on standard input: `spawn`, `destroy`, `reload`, `delete`, which removes the rest of the router after
`destroy`, and `respawned`, which waits until the agent has started other monitors by itself. The answer
to each is a line with a word for each router: the pid of an active monitor, `inactive`, or `refused` if
rootwrap did not run the command.
"""

import importlib.util
import inspect
import os
import pathlib
import sys
import time

# Neutron's libraries, and processes that they start, print their log to standard output.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# Releases that use eventlet have their agents patched by importing this package, first of all.
if importlib.util.find_spec("neutron.cmd.eventlet"):
    import neutron.cmd.eventlet  # noqa: F401

from neutron.agent import l3_agent
from neutron.agent.l3 import ha_router
from neutron.agent.linux import external_process
from neutron.conf.agent import common as agent_options
from oslo_config import cfg
from oslo_rootwrap import cmd


class Driver:
    """Implements an interface driver as far as names and the deletion of a namespace need it."""

    DEV_NAME_LEN = 14

    def unplug(self, *arguments, **keywords):
        """Does nothing: the namespace deletes its devices."""


def configure(file):
    """Reads the agent's options from a file, as in a deployment."""
    l3_agent.register_opts(cfg.CONF)
    agent_options.register_root_helper()
    cfg.CONF(["--config-file", file], project="neutron")
    agent_options.setup_privsep()


def make_router(router_id, process_monitor):
    """Returns a router just before its monitor starts."""
    port = {"id": "aaaaaaaa-aaaa", "subnets": [], "fixed_ips": [{"ip_address": "169.254.192.2"}]}
    details = {"id": router_id, "ha_vr_id": 5, "_ha_interface": port}
    arguments = [None, router_id, details, cfg.CONF, Driver()]
    if "state_change_callback" in inspect.signature(ha_router.HaRouter.__init__).parameters:
        arguments.insert(0, None)
    router = ha_router.HaRouter(*arguments)
    router.set_ha_port()
    if hasattr(router, "_init_conntrackd_manager"):
        router._init_conntrackd_manager(process_monitor)
    router._init_keepalived_manager(process_monitor)
    # The agent does this before it starts the monitor, to read the last state.
    router.keepalived_manager.get_full_config_file_path("state")
    return router


def work():
    """Returns the processor time that the descendants of this process have used, by process."""
    parents, times = {}, {}
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(file.parent.name), file.read_text().rpartition(")")[2].split()
        except OSError:
            # It has ended.
            continue
        parents[pid], times[pid] = int(rest[1]), rest[11:15]
    mine, found = {os.getpid()}, set()
    while found := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= found
    return {pid: times[pid] for pid in mine - {os.getpid()}}


def wait(condition):
    """Waits for a condition for as long as a descendant works, and a minute longer. The agent checks its monitors by itself."""
    before, since = None, time.monotonic()
    while not condition():
        now = work()
        if now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > 60:
            raise TimeoutError(f"no descendant works: {now}")
        time.sleep(0.05)


def command(word, router, process_monitor, known):
    """Runs a command as the agent. Returns the pid of an active monitor."""
    process = router._get_state_change_monitor_process_manager()
    if word == "spawn":
        router.spawn_state_change_monitor(process_monitor)
        # The agent does not wait, and monitors of some releases are still starting.
        wait(lambda: process.active)
    elif word == "destroy":
        router.destroy_state_change_monitor(process_monitor)
    elif word == "reload":
        process.reload_cfg()
    elif word == "delete":
        router.disable_keepalived()
        router.router_namespace.delete()
    elif word == "respawned":
        wait(lambda: process.active and str(process.pid) != known)
    return str(process.pid) if process.active else "inactive"


def answer(word, router, process_monitor, known):
    """Runs a command that rootwrap may refuse."""
    try:
        return command(word, router, process_monitor, known)
    except RuntimeError as error:
        # The class has moved between releases.
        if getattr(error, "returncode", None) == cmd.RC_UNAUTHORIZED:
            return "refused"
        raise


def main():
    file, *router_ids = sys.argv[1:]
    configure(file)
    process_monitor = external_process.ProcessMonitor(cfg.CONF, "router")
    routers = [make_router(router_id, process_monitor) for router_id in router_ids]
    answers = [None] * len(routers)
    for word in map(str.strip, sys.stdin):
        answers = [
            answer(word, router, process_monitor, known)
            for router, known in zip(routers, answers)
        ]
        print(*answers, file=ANSWERS, flush=True)
    process_monitor.stop()


main()
