#!/usr/bin/python3 -B
"""Runs fail-overs in a small Neutron, and compares API, state files and addresses of both nodes after each.

`scenarios.py RELEASE [MONITOR[:SCENARIO]...]`, called by `run`, in its own namespaces; a monitor alone is every scenario
with it. ROUTERS is the number of routers that fail over at once (1), MASS that of a mass start (40), ROUNDS the number of
repetitions (1). Prints a line of Markdown for each, and fails if a router is wrong with keepwatch, or a scenario with it
does not come to its end.
"""

import os
import re
import signal
import subprocess
import sys
import time

from cloud import STATE_PATH, Cloud, run, until
from routers import Routers, advance

# Prints the programs of the monitors that the L3 agent knows, by their pid files.
PROGRAMS = f"""
for file in {STATE_PATH}/external/pids/*.monitor.pid*; do
    readlink "/proc/$(cat "$file" 2>/dev/null)/exe"
done
true
"""
# Sets the HA link of each router in the arguments down 3 s after the state file says that it is active, or after 4 minutes.
FLIP = f"""
for id; do
    (
        tries=2400
        until [ "$(cat "{STATE_PATH}/ha_confs/$id/state")" = primary ] || [ "$((tries -= 1))" = 0 ]; do sleep 0.1; done
        sleep 3
        ip netns exec "qrouter-$id" sh -c 'ip link set $(ls /sys/class/net | grep ^ha-) down'
    ) &
done
wait
"""
# Comes before Debian's haproxy, which the agent starts on an active router before it updates the API.
SLOW = r"""
printf '#!/bin/sh\nsleep 6\nexec /usr/sbin/haproxy "$@"\n' >/usr/local/sbin/haproxy
chmod 755 /usr/local/sbin/haproxy
"""


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


def flip(routers, active, survivor):
    """HA link down, and on the survivor 3 s after its first report, where haproxy takes 6 s to start"""
    survivor.run("sh", "-c", SLOW)
    try:
        routers.link(active, routers.ids, "down")
        survivor.run("sh", "-c", FLIP, "flip", *routers.ids)
        routers.link(active, routers.ids, "up")
        routers.await_vips(active, routers.ids)
        routers.link(survivor, routers.ids, "up")
    finally:
        survivor.run("rm", "/usr/local/sbin/haproxy")


def gateway(routers, active, survivor):
    """HA link down, all gateways cleared and set again meanwhile"""
    def put(gateway):
        for router in routers.ids:
            routers.cloud.api("PUT", f"routers/{router}", {"router": {"external_gateway_info": gateway}})

    routers.link(active, routers.ids, "down")
    put({})
    routers.await_vips(survivor, routers.ids)
    put({"network_id": routers.external[0]})
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
    left = routers.remove([routers.ids.pop()])
    routers.ids.append(routers.add())
    return left


def mass(routers, active, survivor):
    """mass start: routers created while the survivor's agent restarts"""
    survivor.stop_agent("l3")
    before = len(routers.ids)
    routers.ids += [routers.add() for _ in range(int(os.environ.get("MASS", "40")) - before)]
    routers.start(survivor, ["l3"])
    advance(f"routers on {active.name}", lambda: set(routers.ids) - set(routers.look(active)))
    masters = lambda: {router for node in routers.nodes for router in routers.active(node)}
    advance("masters", lambda: set(routers.ids) - masters())


def rollback(routers, active, survivor):
    """survivor rolled back to Neutron's own monitor, HA link down"""
    replace(routers, survivor, "own")
    link(routers, active, survivor)


def upgrade(routers, active, survivor):
    """rolling upgrade: active node with Neutron's own monitor, HA link down, then with keepwatch"""
    replace(routers, active, "own")
    link(routers, active, survivor)
    replace(routers, active, "keepwatch")


SCENARIOS = {scenario.__name__: scenario for scenario in (
    killed, back, link, flip, gateway, link_away, keepalived, cut, restarted, away, agent_killed, rabbitmq, deleted, mass)}
# With both monitors, a node each.
MIXED = {scenario.__name__: scenario for scenario in (rollback, upgrade)}


def replace(routers, node, monitor):
    """Replaces the monitors of a live node, and waits until the agent knows the new ones."""
    node.deploy(monitor)
    node.restart_monitors()

    def missing():
        programs = node.run("sh", "-c", PROGRAMS).splitlines()
        # A program that was replaced has " (deleted)" behind its path.
        right = [name.endswith("/keepwatch") if monitor == "keepwatch" else "keepwatch" not in name for name in programs]
        return range(max(len(routers.ids), len(right)) - sum(right))

    advance(f"monitors on {node.name}", missing)


def swap(routers, monitor):
    """Replaces the monitor on live nodes, and waits until all is right."""
    for node in routers.nodes:
        replace(routers, node, monitor)
    return routers.settle(300)


def report(*cells):
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def clean(routers):
    """Makes every router active on one node, with nothing wrong, and returns that node and the other."""
    for _ in range(2):
        nodes = routers.gather()
        _, wrong = routers.settle(120)
        if not wrong:
            return nodes
        # The next transition may be reported.
        link(routers, *nodes)
    tell(wrong)
    raise TimeoutError(f"clean state: {len(wrong)} wrong")


def tell(wrong):
    for router, voices in wrong:
        print(router, voices, file=sys.stderr, flush=True)


class Trials:
    """Rows of the table, and the number of errors with keepwatch."""

    def __init__(self, routers, release):
        self.routers, self.release = routers, release
        # keepwatch is deployed at first.
        self.in_place, self.bad = "keepwatch", 0

    def row(self, monitor, what, wrong, took, lost=""):
        tell(wrong)
        report(self.release, monitor, what, len(self.routers.ids), len(wrong), f"{took:.0f}", lost)
        self.bad += len(wrong) if monitor == "keepwatch" else 0

    def give_up(self, monitor, what, error):
        """Makes a row of what did not come to its end."""
        report(self.release, monitor, what, len(self.routers.ids), f"gave up: {error}", "-", "-")
        self.bad += monitor == "keepwatch"

    def put(self, monitor):
        self.in_place = monitor
        took, wrong = swap(self.routers, monitor)
        self.row(monitor, "swapped in", wrong, took)

    def begin(self, monitor):
        """Returns the active node and the other, in a clean state."""
        if self.in_place != monitor:
            self.put(monitor)
        try:
            return clean(self.routers)
        except TimeoutError:
            # keepwatch reports the state when it starts.
            self.put("keepwatch")
            self.put(monitor)
            return clean(self.routers)

    def run(self, monitor, name):
        """Runs a scenario from a clean state."""
        scenario = SCENARIOS.get(name) or MIXED[name]
        try:
            self.measure(monitor, scenario, self.begin(monitor))
        except TimeoutError as error:
            self.give_up(monitor, scenario.__doc__, error)
        try:
            self.tidy(monitor, scenario)
        except TimeoutError as error:
            self.give_up(monitor, f"after: {scenario.__doc__}", error)

    def measure(self, monitor, scenario, nodes):
        ping = subprocess.Popen(["ip", "netns", "exec", "guest", "ping", "-n", "-q", "-i", "0.1", "203.0.113.1"],
                                stdout=subprocess.PIPE, text=True)
        try:
            not_gone = scenario(self.routers, *nodes) or []
            took, wrong = self.routers.settle()
        finally:
            ping.send_signal(signal.SIGINT)
            output = ping.communicate()[0]
        if scenario is rollback:
            # The other node is not keepwatch's.
            wrong = [(router, voices) for router, voices in wrong
                     if voices[nodes[0].name] not in (("active", "primary", 1), ("standby", "backup", 0))]
        sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", output).groups()
        lost = int(sent) - int(received) if scenario not in (deleted, gateway) else "-"
        self.row(monitor, scenario.__doc__, [*wrong, *not_gone], took, lost)

    def tidy(self, monitor, scenario):
        routers = self.routers
        for node in routers.nodes:
            if not node.pid:
                routers.start(node)
        if scenario is mass:
            count = int(os.environ.get("ROUTERS", "1"))
            more = routers.ids[count:]
            del routers.ids[count:]
            left = routers.remove(more)
            self.row(monitor, "deleted after the mass start", left, 0)
        if scenario.__name__ in MIXED:
            self.put(monitor)


def main():
    release, *words = sys.argv[1:]
    chosen = []
    # keepwatch is deployed at first, so this order swaps the monitors both ways.
    for word in words or ["own", "keepwatch"]:
        monitor, _, name = word.partition(":")
        every = [*SCENARIOS, *(MIXED if monitor == "keepwatch" else [])]
        chosen += [(monitor, name) for name in ([name] if name else every)]
    count, rounds = (int(os.environ.get(name, "1")) for name in ("ROUTERS", "ROUNDS"))
    # Several clouds may run at once.
    cloud = Cloud(release, f"{release}-{count}-routers-{rounds}-rounds")
    cloud.start()
    for node in cloud.nodes:
        node.deploy("keepwatch")
    routers = Routers(cloud, count)
    report("release", "monitor", "scenario", "routers", "wrong after 60 s", "right after, s", "pings lost of 10/s")
    trials = Trials(routers, release)
    try:
        advance("right routers", routers.wrong)
    except TimeoutError as error:
        tell(routers.wrong())
        trials.give_up("keepwatch", "routers created", error)
        sys.exit(1)
    for monitor, name in chosen * rounds:
        trials.run(monitor, name)
    sys.exit(1 if trials.bad else 0)


main()
