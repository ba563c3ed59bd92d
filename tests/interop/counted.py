"""Counts running monitors by Neutron's own code, as its L3 agent does when it starts.

Usage: counted.py WRAPPER DIRECTORY, in a pid namespace of its own

Starts two monitors by the wrapper. The agent must find both by name. Some releases set the node's HA ports DOWN if
monitors are missing: they must do so for three routers, and not for two.
"""

import ast
import importlib.util
import logging
import os
import pathlib
import subprocess
import sys
import time
import types
from unittest import mock

from neutron.agent.linux import utils
from neutron_lib import constants

NAME = "neutron-keepalived-state-change"
count = utils.get_process_count_by_name


def start(wrapper, directory):
    """Starts a monitor as a daemon."""
    directory.mkdir()
    options = {
        "router_id": directory.name,
        "conf_dir": directory,
        "monitor_interface": "lo",
        "monitor_cidr": "192.0.2.10/24",
        "pid_file": directory / "counted.monitor.pid",
    }
    command = [wrapper, *(f"--{name}={value}" for name, value in options.items())]
    subprocess.run(command, check=True, timeout=60)
    return int(options["pid_file"].read_text())


def reap():
    """Reaps the daemons' parents, as the first process of the namespace."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass


def agents_check():
    """Returns the agent's function, without importing its module, some imports of which are not installed."""
    text = pathlib.Path(importlib.util.find_spec("neutron.agent.l3.agent").origin).read_text()
    name = "_check_ha_router_process_status"
    wanted = lambda node: isinstance(node, ast.FunctionDef) and node.name == name
    function = next(node for node in ast.walk(ast.parse(text)) if wanted(node))
    log = logging.getLogger()
    namespace = {"linux_utils": utils, "lib_const": constants, "LOG": log}
    exec(compile(ast.Module([function], []), name, "exec"), namespace)  # noqa: S102 (Neutron's own code)
    return namespace[name]


def sets_ports_down(check, routers):
    """Returns whether the agent sets ports DOWN, with as many processes of keepalived as it expects."""
    plugin = mock.Mock()
    host = types.SimpleNamespace(
        conf=types.SimpleNamespace(agent_mode="legacy"),
        ha_router_count=routers,
        plugin_rpc=plugin,
        context=None,
    )
    counts = lambda name: 2 * routers if name == "keepalived" else count(name)
    with mock.patch.object(utils, "get_process_count_by_name", counts):
        check(host)
    return plugin.update_all_ha_network_port_statuses.called


def main():
    wrapper, directory, routers = sys.argv[1], pathlib.Path(sys.argv[2]), 2
    pids = [start(wrapper, directory / f"r{number}") for number in range(routers)]
    deadline = time.monotonic() + 20
    while count(NAME) > routers and time.monotonic() < deadline:
        reap()
    assert count(NAME) == routers, count(NAME)
    for pid in pids:
        program = pathlib.Path(f"/proc/{pid}/exe").resolve().name
        assert program == "keepwatch", program
    check = agents_check()
    if "get_process_count_by_name" in check.__code__.co_names:
        assert not sets_ports_down(check, routers)
        assert sets_ports_down(check, routers + 1)


main()
