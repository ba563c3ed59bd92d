"""Starts, watches and stops the monitor of one router as Neutron's L3 agent does.

Usage: process_manager.py DIRECTORY ROUTER_ID

The router is the agent's own class, with as much of a router as its monitor needs: the port
`ha0aaaaaaaa-aa` in the namespace `qrouter-ROUTER_ID`, and VRID 5. All of the agent's files are below
DIRECTORY. The commands on standard input are `spawn`, `destroy` and `reload`; each is answered by a
line, with the pid if the agent finds the monitor active and `inactive` if it does not. `respawned`
waits until the agent has started another monitor by itself.
"""

import importlib.util
import os
import sys

# Neutron's libraries, and processes that they start, print their log to standard output.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# Releases that use eventlet have their agents patched by importing this package, first of all.
if importlib.util.find_spec("neutron.cmd.eventlet"):
    import neutron.cmd.eventlet  # noqa: F401

from neutron.agent import l3_agent
from neutron.agent.l3 import ha_router
from neutron.agent.linux import external_process
from neutron.common import utils
from neutron.conf.agent import common as agent_options
from oslo_config import cfg


class Driver:
    """As much of an interface driver as a name takes."""

    DEV_NAME_LEN = 14


def configure(directory):
    """The agent's options. No sudo: the caller is root."""
    l3_agent.register_opts(cfg.CONF)
    agent_options.register_root_helper()
    cfg.CONF([], project="neutron")
    cfg.CONF.set_override("state_path", directory)
    cfg.CONF.set_override("ha_confs_path", f"{directory}/ha_confs")
    cfg.CONF.set_override("external_pids", f"{directory}/pids")
    cfg.CONF.set_override("root_helper", "", "AGENT")
    # The agent looks after its processes; every minute is its default.
    cfg.CONF.set_override("check_child_processes_interval", 1, "AGENT")
    privsep_helper = f"{sys.prefix}/bin/privsep-helper"
    cfg.CONF.set_override("helper_command", privsep_helper, "privsep")


def make_router(router_id, process_monitor):
    """A router that is about to have its monitor started."""
    port = {"id": "aaaaaaaa-aaaa", "subnets": [], "fixed_ips": [{"ip_address": "169.254.192.2"}]}
    details = {"id": router_id, "ha_vr_id": 5, "_ha_interface": port}
    router = ha_router.HaRouter(None, router_id, details, cfg.CONF, Driver())
    router.set_ha_port()
    router._init_conntrackd_manager(process_monitor)
    router._init_keepalived_manager(process_monitor)
    return router


def command(word, router, process_monitor, known):
    """Does what the agent does. Tells the pid of the monitor if that is active."""
    process = router._get_state_change_monitor_process_manager()
    if word == "spawn":
        router.spawn_state_change_monitor(process_monitor)
        # The agent does not wait; some releases' monitors are still starting now.
        utils.wait_until_true(lambda: process.active, timeout=20, sleep=0.01)
    elif word == "destroy":
        router.destroy_state_change_monitor(process_monitor)
    elif word == "reload":
        process.reload_cfg()
    elif word == "respawned":
        utils.wait_until_true(
            lambda: process.active and process.pid != known, timeout=20, sleep=0.01
        )
    return process.pid if process.active else "inactive"


def main():
    directory, router_id = sys.argv[1:]
    configure(directory)
    process_monitor = external_process.ProcessMonitor(cfg.CONF, "router")
    router = make_router(router_id, process_monitor)
    answer = None
    for word in map(str.strip, sys.stdin):
        answer = command(word, router, process_monitor, answer)
        print(answer, file=ANSWERS, flush=True)
    process_monitor.stop()


main()
