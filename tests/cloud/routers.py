"""The highly available routers of a cloud: made, compared on both nodes and in the API, and removed."""

import re
import sys
import time

from cloud import LOGS, STATE_PATH, run

# The seconds after a scenario when everything must be right.
PATIENCE = 60
# The seconds for which everything must then stay right: a late thread of an agent may undo a report.
RELAPSE = 15
# The seconds without progress after which a wait for many routers ends.
STANDSTILL = 240
# Prints a line for each router of a node: the word of its state file, and the number of VIPs. Only one monitor may write
# that file.
LOOK = f"""
monitors=$(pgrep -fa '^[^ ]*/neutron-keepalived-state-change')
for router in {STATE_PATH}/ha_confs/*/; do
    id=$(basename "$router")
    # The file is empty for a moment while Neutron's own monitor writes it.
    state=$(cat "$router/state" 2>/dev/null)
    state=${{state:-none}}
    [ "$(echo "$monitors" | grep -c "router_id[= ]$id")" -lt 2 ] || state="doubled-$state"
    vips=$(ip netns exec "qrouter-$id" ip -o -4 address 2>/dev/null | grep -c ' ha-.* 169\\.254\\.0\\.')
    echo "$id $state $vips"
done
"""


def advance(what, missing, seconds=STANDSTILL):
    """Waits until nothing is missing, as long as that becomes less."""
    least, end = None, 0
    while left := missing():
        if least is None or len(left) < least:
            least, end = len(left), time.monotonic() + seconds
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: {len(left)} left")
        time.sleep(0.5)


class Routers:
    """Highly available routers on the nodes of a cloud."""

    def __init__(self, cloud, count):
        self.cloud, self.nodes = cloud, cloud.nodes
        self.external = self.network("external", "203.0.113.0/24", **{"router:external": True})
        self.guests = self.network("guests", "10.0.0.0/16")
        self.numbers = iter(range(1, 250))
        self.ids = [self.add() for _ in range(count)]
        # A guest, whose pings go through the first router.
        run("ip", "netns", "add", "guest")
        run("ip", "link", "add", "guest", "type", "veth", "peer", "name", "eth0", "netns", "guest")
        run("ip", "link", "set", "guest", "master", "guests", "up")
        for arguments in ("address add 10.0.0.9/16 dev eth0", "link set eth0 up", "route add default via 10.0.1.1"):
            run("ip", "-n", "guest", *arguments.split())

    def network(self, name, cidr, **values):
        flat = {"provider:network_type": "flat", "provider:physical_network": name}
        network = self.cloud.create("network", name=name, **flat, **values)
        subnet = self.cloud.create("subnet", network_id=network["id"], cidr=cidr, ip_version=4, enable_dhcp=False)
        return network["id"], subnet["id"]

    def add(self):
        """Creates a router with a gateway and an address for guests."""
        number = next(self.numbers)
        gateway = {"network_id": self.external[0]}
        router = self.cloud.create("router", name=f"router{number}", ha=True, external_gateway_info=gateway)["id"]
        address = {"subnet_id": self.guests[1], "ip_address": f"10.0.1.{number}"}
        port = self.cloud.create("port", network_id=self.guests[0], fixed_ips=[address])
        self.cloud.api("PUT", f"routers/{router}/add_router_interface", {"port_id": port["id"]})
        return router

    def remove(self, routers):
        """Deletes routers. Returns what is left of each on the nodes, after two minutes in which nothing of it ended."""
        for router in routers:
            (port,) = [port for port in self.cloud.get(f"ports?device_id={router}&network_id={self.guests[0]}")
                       if port["device_owner"] != "network:router_centralized_snat"]
            self.cloud.api("PUT", f"routers/{router}/remove_router_interface", {"port_id": port["id"]})
            self.cloud.api("DELETE", f"routers/{router}")

        # Matches the routers, but not the processes that have this pattern in their command line.
        pattern = "|".join(f"{router[:-1]}[{router[-1]}]" for router in routers)
        # `find` fails if a directory disappears meanwhile.
        script = (f"find {STATE_PATH} /run/netns ! -path '*/lock/*' 2>/dev/null | grep -E '{pattern}'; "
                  f"pgrep -fa '{pattern}'; true")
        found = lambda: [line for node in self.nodes if node.pid for line in node.run("sh", "-c", script).splitlines()]
        try:
            advance("the end of routers", found, 120)
        except TimeoutError:
            lines = found()
            left = {router: [line for line in lines if router in line] for router in routers}
            return [(router, lines) for router, lines in left.items() if lines]
        return []

    def look(self, node):
        """Returns the word of the state file and the number of VIPs of each router."""
        lines = node.run("sh", "-c", LOOK).splitlines()
        return {router: (state, int(vips)) for router, state, vips in map(str.split, lines)}

    def start(self, node, *agents):
        """Starts a node, or agents of a running one, and waits until the L3 agent has processed its routers."""
        log = LOGS / f"{node.name}-l3.log"
        before = log.stat().st_size
        node.start(*agents)
        new = lambda: log.read_bytes()[before:].decode()
        done = lambda: set(re.findall("Finished a router update for ([-0-9a-f]+)", new()))
        advance(f"routers on {node.name}", lambda: set(self.ids) - (done() & set(self.look(node))))

    def active(self, node):
        """Returns the routers whose VIP is on a node."""
        return [router for router, (_, vips) in self.look(node).items() if vips]

    def wrong(self):
        """Returns the routers that API, state file and VIPs do not show as active on one node and backup on the others."""
        here = {node.name: self.look(node) for node in self.nodes if node.pid}
        wrong = []
        for router in self.ids:
            agents = {agent["host"]: agent["ha_state"] for agent in self.cloud.get(f"routers/{router}/l3-agents")}
            voices = [(agents.get(name), *looks.get(router, ("none", 0))) for name, looks in here.items()]
            actives = voices.count(("active", "primary", 1))
            if actives != 1 or actives + voices.count(("standby", "backup", 0)) != len(voices):
                wrong.append((router, dict(zip(here, voices))))
        return wrong

    def settle(self, seconds=PATIENCE):
        """Waits until nothing is wrong, and stays so. Returns the time that took, and the remaining errors."""
        began = time.monotonic()
        while True:
            took = time.monotonic() - began
            wrong = self.wrong()
            if not wrong:
                time.sleep(RELAPSE)
                wrong = self.wrong()
            if not wrong or took > seconds:
                return took, wrong
            time.sleep(0.5)

    def link(self, node, routers, state):
        for router in routers:
            script = f"ip link set $(ls /sys/class/net | grep ^ha-) {state}"
            node.run("ip", "netns", "exec", f"qrouter-{router}", "sh", "-c", script)

    def await_vips(self, node, routers):
        def missing():
            look = self.look(node)
            return [router for router in routers if look.get(router, ("", -1))[1] != 1]

        advance(f"VIPs on {node.name}", missing)

    def await_keepalived(self, node):
        """Waits until keepalived runs for every router. An agent under load may never start that of a new one: it waits for
        news of the router's port. When it starts again, it does."""
        def missing():
            running = node.run("sh", "-c", "pgrep -fa '^keepalived ' || true")
            return [router for router in self.ids if router not in running]

        try:
            advance(f"keepalived on {node.name}", missing, 60)
        except TimeoutError:
            print(f"{node.name}: no keepalived was started for {missing()}", file=sys.stderr, flush=True)
            node.stop_agent("l3")
            self.start(node, ["l3"])
            advance(f"keepalived on {node.name}", missing)

    def gather(self):
        """Makes every router active on one node, and returns that node and the other."""
        for node in self.nodes:
            self.await_keepalived(node)
        nodes = sorted(self.nodes, key=lambda node: len(self.active(node)))
        moving = self.active(nodes[0])
        self.link(nodes[0], moving, "down")
        self.await_vips(nodes[1], self.ids)
        self.link(nodes[0], moving, "up")
        return nodes[1], nodes[0]
