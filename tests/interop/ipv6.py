"""Compares the IPv6 settings of Neutron's L3 agent after a change of state with those of the hook that replaces it.

Usage: ipv6.py WRAPPER DIRECTORY, as root, in pid, mount and network namespaces of its own

The router, keepalived's configuration and the changes are the agent's own code; only plugging is not.
"""

import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

# Releases that use eventlet have their agents patched by importing this package, first of all.
if importlib.util.find_spec("neutron.cmd.eventlet"):
    import neutron.cmd.eventlet  # noqa: F401

# The module of another driver, some imports of which are not installed.
sys.modules["neutron.agent.common.ovs_lib"] = mock.MagicMock()

from neutron import privileged
from neutron.agent import l3_agent
from neutron.agent.l3 import ha, ha_router
from neutron.agent.linux import interface, ip_lib
from neutron.conf.agent import common as agent_options
from oslo_config import cfg
from oslo_privsep import priv_context

ACTIVE = "primary" if "primary" in ha.TRANSLATION_MAP else "master"
GATEWAY = "gggggggg-gg"
# The addresses of the router and of the hosts, inside and outside.
INSIDE, OUTSIDE = "fd00:1::1/64", "fd00:2::1/64"
HOST, WORLD = "fd00:1::2/64", "fd00:2::2/64"
# The MACs of a router's ports are the same on every node.
MACS = {"qr": "fa:16:3e:00:00:01", "qg": "fa:16:3e:00:00:02"}
# Every way to write the option, in turn.
CONF_DIR = itertools.cycle([["--conf_dir={}"], ["--conf-dir={}"], ["--conf_dir", "{}"], ["--conf-dir", "{}"]])
# A daemon and its helper, which runs the hook as root.
KEEPWATCH = """
import os, subprocess, sys
name, hook, state = sys.argv[1:4]
helper = os.fork()
if helper == 0:
    os._exit(subprocess.run(["ip", "netns", "exec", name, hook, "INSTANCE", "router", state, "0"]).returncode)
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1]))
"""
UPSTREAM = {
    "IPv4 gateway": ["192.0.2.1"],
    "IPv6 gateway": ["192.0.2.1", WORLD.split("/")[0]],
}


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def in_namespace(name, *command):
    return run("ip", "netns", "exec", name, *command)


class Driver(interface.LinuxInterfaceDriver):
    """Sets sysctls like the agent's drivers, and creates no interface."""

    def __init__(self):
        self.DEV_NAME_PREFIX = "tap"

    def plug_new(self, *arguments, **keywords):
        raise NotImplementedError

    def unplug(self, *arguments, **keywords):
        raise NotImplementedError


class Agent(ha.AgentMixin):
    """The agent's code for changes of state, without the rest."""

    def __init__(self):
        self.use_ipv6 = True

    def change(self, router, state):
        self._configure_ipv6_params(router, state)


def configure(directory):
    l3_agent.register_opts(cfg.CONF)
    agent_options.register_root_helper()
    cfg.CONF([], project="neutron")
    cfg.CONF.set_override("state_path", str(directory))
    cfg.CONF.set_override("root_helper", "", "AGENT")
    cfg.CONF.set_override("ha_vrrp_advert_int", 1)
    # This process is root, so it needs no privileged helper.
    for context in vars(privileged).values():
        if isinstance(context, priv_context.PrivContext):
            context.set_client_mode(False)


class Node:
    """One node's part of a router: its namespace, and the agent's object."""

    def __init__(self, number, directory, gateways):
        self.id = f"7e6b5a41-8f0a-4f0e-9c0c-{number:012}"
        self.name = f"qrouter-{self.id}"
        self.confs = directory / f"node{number}"
        self.confs.mkdir()
        port = {"id": "aaaaaaaa-aaaa", "subnets": [], "fixed_ips": [{"ip_address": "169.254.192.1"}]}
        details = {"id": self.id, "ha_vr_id": 5, "_ha_interface": port, "priority": 50}
        cfg.CONF.set_override("ha_confs_path", str(self.confs))
        arguments = [None, self.id, details, cfg.CONF, Driver()]
        if "use_ipv6" in ha_router.HaRouter.__init__.__code__.co_varnames:
            arguments.append(True)
        if "state_change_callback" in ha_router.HaRouter.__init__.__code__.co_varnames:
            arguments.insert(0, None)
        self.router = ha_router.HaRouter(*arguments)
        self.router.use_ipv6 = True
        self.router.set_ha_port()
        if hasattr(self.router, "_init_conntrackd_manager"):
            self.router._init_conntrackd_manager(None)
        self.router._init_keepalived_manager(None)
        # A namespace as the agent creates it.
        run("ip", "netns", "add", self.name)
        for key, value in ("forwarding", 0), ("addr_gen_mode", 1):
            in_namespace(self.name, "sysctl", "-w", f"net.ipv6.conf.all.{key}={value}")
        self.ha, self.gateway = self.router.get_ha_device_name(), None
        if gateways is not None:
            subnets = [{"gateway_ip": ip, "cidr": "::/0" if ":" in ip else "192.0.2.0/24"} for ip in gateways]
            self.router.ex_gw_port = {"id": GATEWAY, "subnets": subnets}
            self.gateway = self.router.get_external_device_name(GATEWAY)
        self.inside = self.router.get_internal_device_name("iiiiiiii-ii")

    def plug(self, device, bridge=None):
        other = f"{device[:2]}-{self.id[-4:]}"
        run("ip", "link", "add", device, "netns", self.name, "type", "veth", "peer", "name", other)
        if device != self.ha:
            in_namespace(self.name, "ip", "link", "set", device, "address", MACS[device[:2]])
        in_namespace(self.name, "ip", "link", "set", device, "up")
        run("ip", "link", "set", other, "up", *(["master", bridge] if bridge else []))
        return other

    def configure(self):
        """Writes keepalived's configuration like the agent."""
        instance = self.router._get_keepalived_instance()
        if self.gateway:
            self.router._add_default_gw_virtual_route(self.router.ex_gw_port, self.gateway)
            self.router._add_vip("192.0.2.10/24", self.gateway)
            self.router._add_vip(OUTSIDE, self.gateway)
        self.router._add_vip(INSIDE, self.inside)
        for device in filter(None, [self.inside, self.gateway]):
            address = ip_lib.get_ipv6_lladdr(MACS[device[:2]])
            self.router._add_vip(address, device, scope="link")
        assert instance.vips
        text = self.router.keepalived_manager.config.get_config_str()
        self.conf = self.confs / self.id / "keepalived.conf"
        self.conf.parent.mkdir(exist_ok=True)
        self.conf.write_text(text)

    def sysctls(self):
        names = ["all", self.ha, self.inside] + ([self.gateway] if self.gateway else [])
        keys = [f"net.ipv6.conf.{name}.{key}" for name in names for key in ("forwarding", "accept_ra")]
        return in_namespace(self.name, "sysctl", *keys)

    def call_hook(self, hook, state):
        """Runs the hook like a keepwatch with this command line, which runs as the agent's user."""
        option = [word.format(self.conf.parent) for word in next(CONF_DIR)]
        run(sys.executable, "-c", KEEPWATCH, self.name, hook, state, *option)


def refuses(wrapper, conf, directory):
    """Tries options that the wrapper refuses to the agent's user, and a file that users other than root may write."""
    # The user that sudo reports.
    user = 65534

    def status(*words):
        """Returns the exit code with further words on the command line."""
        accepted = [f"--conf_dir={directory}", f"--pid_file={directory}/x.monitor.pid",
                    f"--log-file={directory}/neutron-keepalived-state-change.log", "--version"]
        environment = dict(os.environ, SUDO_UID=str(user), SUDO_GID=str(user))
        return subprocess.run([wrapper, *accepted, *words], capture_output=True, check=False, env=environment).returncode

    assert status() == 0
    assert status(f"--pid-file={directory}/x.monitor.pid.neutron-keepalived-state-change-monitor") == 0
    assert status("--log_file", f"{directory}/neutron-keepalived-state-change-router.log") == 0
    for name in "hook", "hook-user", "hook_user", "metrics-file", "metrics_file", "conntrackd_conf", "list", "log-dir":
        for words in [f"--{name}=/bin/true"], ["--debug", f"--{name}", "/bin/true"]:
            assert status(*words) == 2, words
    for words in (
        ["--router_id=../x"], ["--router_id=.."], ["--router-id", "."], ["--namespace=/proc/kmsg"], ["word"], [""],
        # The first line of the file would be the value.
        ["--router_id"], ["--AGENT-x"],
    ):
        assert status(*words) == 2, words
    for mode, owner in (0o664, 0), (0o646, 0), (0o644, user):
        conf.chmod(mode)
        os.chown(conf, owner, 0)
        assert status() == 2, oct(mode)
    conf.chmod(0o644)
    os.chown(conf, 0, 0)


def same_as_the_agent(hook, directory):
    """Checks that hook and agent have equal settings in every state, with every kind of gateway, in both orders."""
    # Process 1 is in this namespace, as on a host.
    assert "not a router's" in run(hook, "INSTANCE", "router", "MASTER", "0")
    assert pathlib.Path("/proc/sys/net/ipv6/conf/all/forwarding").read_text() == "0\n"
    for number, (kind, gateways) in enumerate({"no gateway": None, **UPSTREAM}.items()):
        nodes = [Node(10 + 2 * number + which, directory, gateways) for which in (0, 1)]
        for node in nodes:
            for device in filter(None, [node.ha, node.inside, node.gateway]):
                node.plug(device)
            node.configure()
        agents, hooks = nodes
        for state, word in [("backup", "BACKUP"), (ACTIVE, "MASTER"), ("backup", "FAULT"), (ACTIVE, "MASTER")]:
            Agent().change(agents.router, state)
            hooks.call_hook(hook, word)
            assert hooks.sysctls() == agents.sysctls(), (kind, state, hooks.sysctls(), agents.sysctls())
            before = hooks.sysctls()
            Agent().change(hooks.router, state)
            assert hooks.sysctls() == before, (kind, state)
        if gateways:
            reads_as_the_agent(hook, hooks, directory)


def reads_as_the_agent(hook, node, directory):
    """Checks that the hook reads no file of root's through a link of the agent's user."""
    secret = directory / "secret"
    node.conf.rename(secret)
    # Root's group may read it.
    secret.chmod(0o640)
    os.setgroups([0])
    node.conf.symlink_to(secret)
    os.chown(node.conf.parent, 65534, 65534)
    try:
        node.call_hook(hook, "MASTER")
    except subprocess.CalledProcessError:
        return
    raise AssertionError("the hook has read a file of root's")


def wait(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


# A refused connection is an answer, too.
ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 1)
except ConnectionRefusedError:
    sys.exit(0)
except OSError as error:
    sys.exit(str(error))
"""


def reaches():
    """Returns whether the host inside reaches the outside by IPv6, through the active node."""
    command = ["ip", "netns", "exec", "host", sys.executable, "-I", "-c", ASK, WORLD.split("/")[0]]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def host(name, address, router, bridge, behind):
    """Creates a host beside the router, with routes to the network behind it."""
    run("ip", "netns", "add", name)
    run("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", name)
    run("ip", "link", "set", name, "up", "master", bridge)
    in_namespace(name, "ip", "address", "add", address, "dev", "eth0", "nodad")
    in_namespace(name, "ip", "link", "set", "eth0", "up")
    in_namespace(name, "ip", "route", "add", behind, "via", router.split("/")[0])


def fail_over(wrapper, directory):
    """Checks that the second of two nodes without an agent takes over, and that its returning agent changes nothing."""
    for bridge in ("ha", "in", "out"):
        run("ip", "link", "add", bridge, "up", "type", "bridge")
    host("host", HOST, INSIDE, "in", "fd00:2::/64")
    host("world", WORLD, OUTSIDE, "out", "fd00:1::/64")
    nodes = [Node(number, directory, UPSTREAM["IPv6 gateway"]) for number in (1, 2)]
    processes = []
    for number, node in enumerate(nodes, 1):
        node.link = node.plug(node.ha, "ha")
        node.plug(node.inside, "in")
        node.plug(node.gateway, "out")
        in_namespace(node.name, "ip", "address", "add", f"169.254.192.{number}/18", "dev", node.ha)
        Agent().change(node.router, "backup")
        node.configure()
        options = [
            f"--router_id={node.id}",
            f"--namespace={node.name}",
            f"--conf_dir={node.conf.parent}",
            f"--monitor_interface={node.ha}",
            "--monitor_cidr=169.254.0.5/24",
            f"--pid_file={node.conf.parent}/router.monitor.pid",
            "--user=nobody",
            "--group=nogroup",
        ]
        os.chown(node.conf.parent, 65534, 65534)
        run(wrapper, *options)
    def start(node):
        command = ["ip", "netns", "exec", node.name, "keepalived", "-n", "-P", "-l", "-f", node.conf]
        command += ["-p", node.confs / "keepalived.pid", "-r", node.confs / "vrrp.pid"]
        with open(node.confs / "log", "w") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
    try:
        first, second = nodes
        start(first)
        wait("IPv6 through the first node", reaches)
        start(second)
        wait("the second node as backup", lambda: "BACKUP" in (second.confs / "log").read_text())
        assert "net.ipv6.conf.all.forwarding = 0" in second.sysctls()
        run("ip", "link", "set", first.link, "down")
        wait("IPv6 through the second node", reaches)
        state = second.conf.parent / "state"
        assert state.read_text() in ("master", "primary"), state.read_text()
        for node in nodes:
            wait("metrics of its own", (directory / f"metrics/{node.id}.prom").exists)
        wait("the first as backup", lambda: f"{first.gateway}.forwarding = 0" in first.sysctls())
        watch = ["ip", "netns", "exec", second.name, "ip", "monitor", "netconf", "address", "route"]
        with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as monitor:
            Agent().change(second.router, ACTIVE)
            assert reaches()
            # An event that marks the end of the earlier ones.
            in_namespace(second.name, "ip", "address", "add", "203.0.113.1/32", "dev", "lo")
            event = next(line for line in monitor.stdout if "lo" in line or "forwarding" in line or "accept" in line)
            monitor.terminate()
        assert "203.0.113.1" in event, event
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def main():
    wrapper, directory = map(pathlib.Path, sys.argv[1:])
    hook = wrapper.parent / "keepwatch-neutron/ipv6"
    # The machine's own settings must not change.
    for place in map(pathlib.Path, ("/run/netns", "/etc/keepwatch")):
        place.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", place)
    conf = pathlib.Path("/etc/keepwatch/neutron.conf")
    directory.chmod(0o755)
    metrics = directory / "metrics"
    metrics.mkdir()
    os.chown(metrics, 65534, 65534)
    # The last line has no end.
    conf.write_text(f"# A hook.\n\n--hook={hook}\n--hook-user=root\n--metrics-file={metrics}/{{router}}.prom")
    refuses(wrapper, conf, directory)
    configure(directory)
    same_as_the_agent(hook, directory)
    fail_over(wrapper, directory)


main()
