"""A whole Neutron on one machine: the controller in the current namespaces, and two network nodes in others.

The networks (management, external, guests', HA) are bridges, to which each node has a cable. A node is a network, mount,
UTS and PID namespace with layers of its own over the machine's files. It has an agent for Open vSwitch, in userspace, and
an L3 agent, both as an ordinary user with sudo, rootwrap and privsep.
"""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path("/srv/work")
LOGS = WORK / "logs"
USER = 4242
SWITCHES = ["management", "external", "guests", "ha"]
AGENTS = ["openvswitch", "l3"]
STATE_PATH = "/var/lib/neutron"

CONFIGURATION = """
[DEFAULT]
host = {name}
core_plugin = ml2
service_plugins = router
auth_strategy = noauth
api_paste_config = {etc}/api-paste.ini
transport_url = rabbit://guest:guest@10.10.0.1
state_path = {state_path}
bind_host = 10.10.0.1
api_workers = 1
rpc_workers = 1
rpc_state_report_workers = 1
notify_nova_on_port_status_changes = False
notify_nova_on_port_data_changes = False
dhcp_agent_notification = False
agent_down_time = 30
l3_ha = True
l3_ha_network_type = flat
l3_ha_network_physical_name = ha
interface_driver = openvswitch
ovs_use_veth = True
[quotas]
default_quota = -1
quota_port = -1
quota_router = -1
[agent]
report_interval = 10
check_child_processes_interval = 20
tunnel_types =
root_helper = sudo {venv}/bin/neutron-rootwrap /etc/neutron/rootwrap.conf
root_helper_daemon = sudo {venv}/bin/neutron-rootwrap-daemon /etc/neutron/rootwrap.conf
[database]
connection = mysql+pymysql://root@localhost/neutron?unix_socket={work}/mysql.sock
[oslo_concurrency]
lock_path = {state_path}/lock
[privsep]
helper_command = sudo {venv}/bin/privsep-helper
[ml2]
type_drivers = flat
tenant_network_types =
mechanism_drivers = openvswitch
[ml2_type_flat]
flat_networks = *
[ovs]
datapath_type = netdev
bridge_mappings = external:br-external,guests:br-guests,ha:br-ha
[securitygroup]
enable_security_group = False
firewall_driver = noop
"""

# The first process of a node. The interfaces of its cables come later.
FIRST_PROCESS = """
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/netns /run/openvswitch /run/sudo
mkdir -p {state_path}
for directory in /etc /opt /usr/local {state_path}; do
    mkdir -p {layers}/upper$directory {layers}/work$directory
    mount -t overlay -o "lowerdir=$directory,upperdir={layers}/upper$directory,workdir={layers}/work$directory" \
        overlay $directory
done
chown {user}:{user} {state_path}
mount -t sysfs sysfs /sys
hostname {name}
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
touch /run/ready
while :; do sleep 1000; done
"""


def run(*command, **options):
    """Runs a command, and returns its output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def until(what, condition, seconds=300):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.2)


def works(*command):
    """Returns whether a command succeeds."""
    return subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def service(name, *command, **options):
    """Starts a command in its own session, with its output in a file."""
    with open(LOGS / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options)


class Cloud:
    """The controller and the nodes. Logs are in target/cloud/logs/NAME."""

    def __init__(self, release, name):
        self.release, self.name = release, name
        self.venv = pathlib.Path("/srv/neutron", release)
        self.etc = WORK / "controller"
        self.nodes = [Node(self, number) for number in (1, 2)]

    def start(self):
        kept = ROOT / f"target/cloud/logs/{self.name}"
        kept.mkdir(parents=True, exist_ok=True)
        WORK.mkdir(exist_ok=True)
        # Both end with this mount namespace, so the next release finds nothing of this one.
        for directory in (WORK, "/run/netns"):
            run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
        LOGS.symlink_to(kept)
        run("ip", "link", "set", "lo", "up")
        for switch in SWITCHES:
            run("ip", "link", "add", switch, "type", "bridge", "mcast_snooping", "0")
            run("ip", "link", "set", switch, "up")
        run("ip", "address", "add", "10.10.0.1/24", "dev", "management")
        run("ip", "address", "add", "203.0.113.1/24", "dev", "external")
        self.configure(self.etc, "controller", WORK / "state")
        self.start_rabbitmq()
        self.start_database()
        self.start_server()
        # An agent that starts before the controller listens waits for a minute.
        for agent in AGENTS:
            for node in self.nodes:
                node.start([agent])
            self.await_agents((AGENTS.index(agent) + 1) * len(self.nodes))

    def await_agents(self, count):
        alive = lambda: sum(one["alive"] for one in self.get("agents"))
        until("agents", lambda: alive() >= count, 600)

    def configure(self, etc, name, state_path):
        run("mkdir", "-p", etc.parent)
        run("cp", "-r", self.venv / "etc/neutron", etc)
        text = CONFIGURATION.format(name=name, etc=etc, venv=self.venv, work=WORK, state_path=state_path)
        (etc / "neutron.conf").write_text(text)

    def start_rabbitmq(self):
        home = WORK / "rabbitmq"
        home.mkdir(exist_ok=True)
        (home / "conf.conf").write_text("loopback_users = none\nvm_memory_high_watermark.absolute = 2GB\n")
        (home / "plugins").write_text("[].")
        environment = dict(
            os.environ, HOME=str(home), RABBITMQ_NODENAME="rabbit@localhost", RABBITMQ_MNESIA_BASE=f"{home}/mnesia",
            RABBITMQ_LOG_BASE=str(home), RABBITMQ_CONFIG_FILE=f"{home}/conf.conf",
            RABBITMQ_ENABLED_PLUGINS_FILE=f"{home}/plugins")
        program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        self.rabbitmq = service("rabbitmq", program, env=environment)
        until("RabbitMQ", lambda: ":5672 " in run("ss", "-lnt"))

    def stop_rabbitmq(self):
        os.killpg(self.rabbitmq.pid, signal.SIGKILL)
        self.rabbitmq.wait()

    def start_database(self):
        data, socket = f"--datadir={WORK}/mysql", f"--socket={WORK}/mysql.sock"
        with open(LOGS / "database.log", "ab") as log:
            run("mariadb-install-db", "--no-defaults", "--user=root", data,
                "--auth-root-authentication-method=normal", stderr=log)
        service("database", "mariadbd", "--no-defaults", "--user=root", data, socket, "--skip-networking",
                f"--pid-file={WORK}/mysql.pid", "--innodb-flush-log-at-trx-commit=0", "--max-connections=500")
        client = ["mariadb", "--no-defaults", "--user=root", socket, "--execute"]
        until("the database", lambda: works(*client, "create database neutron character set utf8"))
        with open(LOGS / "database.log", "ab") as log:
            run(self.venv / "bin/neutron-db-manage", "--config-file", self.etc / "neutron.conf", "upgrade", "heads",
                stderr=log)

    def start_server(self):
        """Release 29 has no `neutron-server`."""
        files = ["--config-file", self.etc / "neutron.conf"]
        if (self.venv / "bin/neutron-server").exists():
            service("server", self.venv / "bin/neutron-server", *files)
        else:
            environment = dict(os.environ, OS_NEUTRON_CONFIG_DIR=str(self.etc), OS_NEUTRON_CONFIG_FILES="neutron.conf")
            service("server", self.venv / "bin/uwsgi", "--http-socket", "10.10.0.1:9696", "--master", "--threads", "8",
                    "--module", "neutron.wsgi.api:application", "--enable-threads", "--buffer-size", "65535",
                    env=environment)
            for program in ("rpc-server", "periodic-workers"):
                service(program, self.venv / f"bin/neutron-{program}", *files)
        until("the server", lambda: ":9696 " in run("ss", "-lnt"))

    def api(self, method, path, body=None):
        request = urllib.request.Request(
            f"http://10.10.0.1:9696/v2.0/{path}", method=method, data=body and json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.loads(reply.read() or "null")

    def get(self, path):
        (value,) = self.api("GET", path).values()
        return value

    def create(self, kind, **values):
        return self.api("POST", f"{kind}s", {kind: dict(values, project_id="cloud")})[kind]


class Node:
    """A network node."""

    def __init__(self, cloud, number):
        self.cloud, self.number, self.name = cloud, number, f"node{number}"
        self.layers = WORK / self.name
        self.pid = None

    def start(self, agents=AGENTS):
        """Boots it with the files of its last run, unless it is running."""
        if not self.pid:
            self.boot()
        for agent in agents:
            self.start_agent(agent)

    def boot(self):
        if not self.layers.exists():
            self.configure()
        script = FIRST_PROCESS.format(name=self.name, layers=self.layers, user=USER, state_path=STATE_PATH)
        outer = service(self.name, "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child",
                        "--mount-proc", "sh", "-euc", script)
        children = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        self.pid = until("a first process", lambda: children.read_text().strip())
        until("the node", lambda: os.path.exists(f"/proc/{self.pid}/root/run/ready"))
        for switch in SWITCHES:
            cable = f"{switch}{self.number}"
            run("ip", "link", "add", cable, "type", "veth", "peer", "name", switch, "netns", self.pid)
            run("ip", "link", "set", cable, "master", switch, "up")
            self.run("ip", "link", "set", switch, "up")
        self.run("ip", "address", "add", f"10.10.0.1{self.number}/24", "dev", "management")
        self.start_switch()

    def configure(self):
        etc = self.layers / "upper/etc"
        self.cloud.configure(etc / "neutron", self.name, STATE_PATH)
        bin = self.cloud.venv / "bin"
        rootwrap = etc / "neutron/rootwrap.conf"
        rootwrap.write_text(rootwrap.read_text().replace("exec_dirs=", f"exec_dirs={bin},"))
        for file, line in (
            ("passwd", f"neutron:x:{USER}:{USER}::{STATE_PATH}:/bin/sh\n"),
            ("group", f"neutron:x:{USER}:\n"),
            ("shadow", "neutron:*:19000:0:99999:7:::\n"),
            ("hosts", f"127.0.0.1 {self.name}\n"),
        ):
            (etc / file).write_text(pathlib.Path("/etc", file).read_text() + line)
        (etc / "sudoers.d").mkdir()
        (etc / "sudoers.d/neutron").write_text("".join(
            f"neutron ALL = (root) NOPASSWD: {bin}/{command}\n" for command in (
                "neutron-rootwrap /etc/neutron/rootwrap.conf *", "neutron-rootwrap-daemon /etc/neutron/rootwrap.conf",
                "privsep-helper *")))

    def kill(self):
        """Kills it, like a power cut."""
        os.kill(int(self.pid), signal.SIGKILL)
        cables = [f"{switch}{self.number}" for switch in SWITCHES]
        until("the end of a node", lambda: not any(works("ip", "link", "show", cable) for cable in cables))
        self.pid = None

    def command(self, *command):
        return ["nsenter", "--target", self.pid, "--mount", "--net", "--uts", "--pid", *command]

    def run(self, *command, **options):
        return run(*self.command(*command), **options)

    def start_switch(self):
        data = self.layers / "switch.db"
        data.unlink(missing_ok=True)
        run("ovsdb-tool", "create", data, "/usr/share/openvswitch/vswitch.ovsschema")
        self.service("ovsdb-server", data, "--remote=punix:/run/openvswitch/db.sock", "--remote=ptcp:6640:127.0.0.1")
        until("a switch", lambda: works(*self.command("ovs-vsctl", "--no-wait", "init")))
        self.service("ovs-vswitchd", "unix:/run/openvswitch/db.sock")
        for switch in SWITCHES[1:]:
            bridge = f"br-{switch}"
            self.run("ovs-vsctl", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "--",
                     "add-port", bridge, switch)

    def service(self, program, *arguments):
        service(f"{self.name}-{program}", *self.command(program, *arguments))

    def start_agent(self, name):
        bin = self.cloud.venv / "bin"
        service(f"{self.name}-{name}", *self.command(
            "setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "env", "-i", f"HOME={STATE_PATH}",
            f"PATH={bin}:/usr/sbin:/usr/bin:/sbin:/bin", bin / f"neutron-{name}-agent",
            "--config-file", "/etc/neutron/neutron.conf"))

    def stop_agent(self, name, kill=False):
        """Ends only an agent, like its unit (KillMode=process): by SIGKILL, or by SIGTERM first."""
        pattern = f"^(neutron-{name}-agent[ :]|[^ ]*python[^ ]* [^ ]*/neutron-{name}-agent )"
        ended = lambda: not works(*self.command("pgrep", "-f", pattern))
        if not kill:
            self.run("pkill", "-o", "-f", pattern)
            try:
                return until("the end of an agent", ended, 30)
            except TimeoutError:
                pass
        self.run("pkill", "-KILL", "-f", pattern)
        until("the end of an agent", ended)

    def deploy(self, monitor):
        """Makes the agent start keepwatch, or its own monitor, by docs/neutron.md. Running monitors continue."""
        release = int(self.cloud.release.split(".")[0])
        wrapper = "from-29" if release > 28 else "18-to-28"
        text = (ROOT / "docs/neutron.md").read_text()
        block = lambda name: text.split(f"<!-- run: {name} -->\n```sh\n")[1].split("```")[0]
        blocks = block("program") + block("directory") if monitor == "keepwatch" else block("directory: back")
        here = self.layers / "here"
        here.mkdir(exist_ok=True)
        run("cp", ROOT / os.environ["KEEPWATCH"], here / "keepwatch")
        run("cp", "-r", ROOT / "cross", here)
        self.run("env", "-C", here, f"wrapper=cross/neutron/{wrapper}", "sh", "-euc", blocks)
        # Rootwrap's daemon reads its configuration only once. The agent starts another.
        works(*self.command("pkill", "-f", "neutron-rootwrap-daemon"))

    def restart_monitors(self):
        works(*self.command(self.layers / "here/cross/neutron/restart-monitors", f"{STATE_PATH}/external/pids"))
