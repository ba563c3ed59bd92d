#!/usr/bin/python3 -B
"""Runs fail-overs in a small Neutron, and compares API, state files and addresses of both nodes after each.

`scenarios.py RELEASE [MONITOR[:SCENARIO]...]`, called by `run`, in its own namespaces; a monitor alone is every scenario
with it. ROUTERS is the number of routers that fail over at once (1), ROUNDS the number of repetitions (1). Prints a line of
Markdown for each, and fails if a router is wrong with keepwatch.
"""

import os
import re
import signal
import subprocess
import sys
import time

from cloud import LOGS, STATE_PATH, Cloud, run, until

# The seconds after a scenario when everything must be right.
PATIENCE = 60
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
# Prints the programs of the monitors that the L3 agent knows, by their pid files.
PROGRAMS = f"""
for file in {STATE_PATH}/external/pids/*.monitor.pid*; do
    readlink "/proc/$(cat "$file" 2>/dev/null)/exe"
done
true
"""


class Routers:
    """Highly available routers on the nodes of a cloud."""

    def __init__(self, cloud, count):
        self.cloud, self.nodes = cloud, cloud.nodes
        self.external = self.network("external", "203.0.113.0/24", **{"router:external": True})
        self.guests = self.network("guests", "10.0.0.0/16")
        self.ids = [self.add(number) for number in range(count)]
        # A guest, whose pings go through the first router.
        run("ip", "netns", "add", "guest")
        run("ip", "link", "add", "guest", "type", "veth", "peer", "name", "eth0", "netns", "guest")
        run("ip", "link", "set", "guest", "master", "guests", "up")
        for arguments in ("address add 10.0.0.9/16 dev eth0", "link set eth0 up", "route add default via 10.0.1.0"):
            run("ip", "-n", "guest", *arguments.split())

    def network(self, name, cidr, **values):
        flat = {"provider:network_type": "flat", "provider:physical_network": name}
        network = self.cloud.create("network", name=name, **flat, **values)
        subnet = self.cloud.create("subnet", network_id=network["id"], cidr=cidr, ip_version=4, enable_dhcp=False)
        return network["id"], subnet["id"]

    def add(self, number):
        """Creates a router with a gateway and an address for guests."""
        gateway = {"network_id": self.external[0]}
        router = self.cloud.create("router", name=f"router{number}", ha=True, external_gateway_info=gateway)["id"]
        address = {"subnet_id": self.guests[1], "ip_address": f"10.0.1.{number}"}
        port = self.cloud.create("port", network_id=self.guests[0], fixed_ips=[address])
        self.cloud.api("PUT", f"routers/{router}/add_router_interface", {"port_id": port["id"]})
        return router

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
        until("routers", lambda: done() >= set(self.ids) <= set(self.look(node)), 900)

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
        """Waits until nothing is wrong. Returns the time that took, and the remaining errors."""
        began = time.monotonic()
        while True:
            wrong = self.wrong()
            took = time.monotonic() - began
            if not wrong or took > seconds:
                return took, wrong
            time.sleep(0.5)

    def link(self, node, routers, state):
        for router in routers:
            script = f"ip link set $(ls /sys/class/net | grep ^ha-) {state}"
            node.run("ip", "netns", "exec", f"qrouter-{router}", "sh", "-c", script)

    def await_vips(self, node, routers):
        def have():
            look = self.look(node)
            return all(look.get(router, ("", -1))[1] == 1 for router in routers)

        until("VIPs", have)

    def gather(self):
        """Makes every router active on one node, and returns that node and the other."""
        nodes = sorted(self.nodes, key=lambda node: len(self.active(node)))
        moving = self.active(nodes[0])
        self.link(nodes[0], moving, "down")
        self.await_vips(nodes[1], self.ids)
        self.link(nodes[0], moving, "up")
        return nodes[1], nodes[0]


def killed(routers, active, survivor):
    """node killed"""
    active.kill()
    routers.await_vips(survivor, routers.ids)


def back(routers, active, survivor):
    """node killed, and back"""
    killed(routers, active, survivor)
    routers.start(active)


def link(routers, active, survivor):
    """HA link down"""
    routers.link(active, routers.ids, "down")
    routers.await_vips(survivor, routers.ids)
    routers.link(active, routers.ids, "up")


def link_away(routers, active, survivor):
    """HA link down, the active node's agent away for 20 s"""
    active.stop_agent("l3")
    link(routers, active, survivor)
    time.sleep(20)
    routers.start(active, ["l3"])


def keepalived(routers, active, _survivor):
    """keepalived killed"""
    pids = lambda: set(active.run("sh", "-c", "pgrep keepalived || true").split())
    before = pids()
    active.run("pkill", "-KILL", "keepalived")
    # Two for each router.
    until("keepalived", lambda: len(pids() - before) >= 2 * len(routers.ids))


def cut(routers, active, survivor):
    """HA network cut for 30 s"""
    run("ip", "link", "set", f"ha{active.number}", "down")
    routers.await_vips(survivor, routers.ids)
    time.sleep(20)
    run("ip", "link", "set", f"ha{active.number}", "up")
    both = lambda: sum(len(routers.active(node)) for node in routers.nodes)
    until("one master", lambda: both() == len(routers.ids))


def restarted(routers, active, survivor):
    """agents restarted"""
    for node in (active, survivor):
        node.stop_agent("l3")
        routers.start(node, ["l3"])


def away(routers, active, survivor):
    """survivor's agent away, comes later"""
    survivor.stop_agent("l3")
    link(routers, active, survivor)
    routers.start(survivor, ["l3"])


def agent_killed(routers, active, survivor):
    """survivor's agent killed as the VIPs come"""
    routers.link(active, routers.ids, "down")
    routers.await_vips(survivor, routers.ids)
    time.sleep(1)
    survivor.stop_agent("l3", kill=True)
    routers.start(survivor, ["l3"])
    routers.link(active, routers.ids, "up")


def rabbitmq(routers, active, survivor):
    """RabbitMQ away for 30 s"""
    routers.link(active, routers.ids, "down")
    time.sleep(3)
    routers.cloud.stop_rabbitmq()
    time.sleep(30)
    routers.cloud.start_rabbitmq()
    routers.link(active, routers.ids, "up")


def deleted(routers, active, survivor):
    """router deleted and recreated"""
    router = routers.ids.pop()
    cloud = routers.cloud
    (port,) = [port for port in cloud.get(f"ports?device_id={router}&network_id={routers.guests[0]}")
               if port["device_owner"] != "network:router_centralized_snat"]
    cloud.api("PUT", f"routers/{router}/remove_router_interface", {"port_id": port["id"]})
    cloud.api("DELETE", f"routers/{router}")

    # Matches the router, but not the shell that has this pattern in its command line.
    pattern = f"{router[:-1]}[{router[-1]}]"

    def left(node):
        # `find` fails if a directory disappears meanwhile.
        files = f"find {STATE_PATH} /run/netns -name '*{pattern}*' ! -path '*/lock/*' || true"
        return node.run("sh", "-c", f"{files}; pgrep -fa '{pattern}' || true")

    try:
        until("the end of a router", lambda: not any(left(node) for node in (active, survivor)))
        wrong = []
    except TimeoutError:
        wrong = [(router, [left(node) for node in (active, survivor)])]
    routers.ids.append(routers.add(len(routers.ids)))
    return wrong


SCENARIOS = {scenario.__name__: scenario for scenario in (
    killed, back, link, link_away, keepalived, cut, restarted, away, agent_killed, rabbitmq, deleted)}


def swap(cloud, routers, monitor):
    """Replaces the monitor on live nodes, and waits until all is right."""
    for node in cloud.nodes:
        node.deploy(monitor)
        node.restart_monitors()

    def is_in_place(node):
        programs = node.run("sh", "-c", PROGRAMS).splitlines()
        # A program that was replaced has " (deleted)" behind its path.
        right = [name.endswith("/keepwatch") if monitor == "keepwatch" else "keepwatch" not in name for name in programs]
        return len(right) >= len(routers.ids) and all(right)

    until("the monitors", lambda: all(map(is_in_place, cloud.nodes)), 600)
    return routers.settle(300)


def report(*cells):
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def clean(routers):
    """Makes every router active on one node, with nothing wrong, and returns that node and the other."""
    for _ in range(3):
        nodes = routers.gather()
        _, wrong = routers.settle(180)
        if not wrong:
            return nodes
        # The next transition may be reported.
        link(routers, *nodes)
    raise TimeoutError(f"a clean state: {wrong}")


def trial(routers, release, monitor, scenario, nodes):
    """Runs a scenario from a clean state. Returns how many routers are wrong, or are deleted and not gone."""
    ping = subprocess.Popen(["ip", "netns", "exec", "guest", "ping", "-n", "-q", "-i", "0.1", "203.0.113.1"],
                            stdout=subprocess.PIPE, text=True)
    not_gone = scenario(routers, *nodes) or []
    took, wrong = routers.settle()
    wrong = [*wrong, *not_gone]
    ping.send_signal(signal.SIGINT)
    sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", ping.communicate()[0]).groups()
    for router, voices in wrong:
        print(router, voices, file=sys.stderr, flush=True)
    lost = int(sent) - int(received) if scenario != deleted else "-"
    report(release, monitor, scenario.__doc__, len(routers.ids), len(wrong), f"{took:.0f}", lost)
    for node in routers.nodes:
        if not node.pid:
            routers.start(node)
    return len(wrong)


def main():
    release, *words = sys.argv[1:]
    chosen = []
    # keepwatch is deployed at first, so this order swaps the monitors both ways.
    for word in words or ["own", "keepwatch"]:
        monitor, _, name = word.partition(":")
        chosen += [(monitor, name) for name in ([name] if name else SCENARIOS)]
    count, rounds = (int(os.environ.get(name, "1")) for name in ("ROUTERS", "ROUNDS"))
    # Several clouds may run at once.
    cloud = Cloud(release, f"{release}-{count}-routers-{rounds}-rounds")
    cloud.start()
    for node in cloud.nodes:
        node.deploy("keepwatch")
    routers = Routers(cloud, count)
    until("routers", lambda: not routers.wrong(), 900)
    report("release", "monitor", "scenario", "routers", "wrong after 60 s", "right after, s", "pings lost of 10/s")
    in_place, bad = "keepwatch", 0

    def put(monitor):
        nonlocal in_place, bad
        in_place = monitor
        took, wrong = swap(cloud, routers, monitor)
        report(release, monitor, "swapped in", len(routers.ids), len(wrong), f"{took:.0f}", "")
        bad += len(wrong) if monitor == "keepwatch" else 0

    for monitor, name in chosen * rounds:
        if in_place != monitor:
            put(monitor)
        try:
            nodes = clean(routers)
        except TimeoutError:
            # keepwatch reports the state when it starts.
            put("keepwatch")
            put(monitor)
            nodes = clean(routers)
        wrong = trial(routers, release, monitor, SCENARIOS[name], nodes)
        bad += wrong if monitor == "keepwatch" else 0
    sys.exit(1 if bad else 0)


main()
