"""Moves an address between two routers that Prometheus watches, and draws its data."""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import matplotlib.pyplot as plt

VIP = "192.0.2.10/24"
ROUTERS = {"left": 9101, "right": 9102}
SCRAPE = 2
PICTURE = "docs/monitoring.svg"
COLOURS = {"active": "#2f6f4f", "pending": "#f0b860", "firing": "#c0392b"}


def run(*words):
    subprocess.run(words, check=True)


def within(router, *words):
    run("ip", "netns", "exec", router, *words)


def wire():
    """Creates two namespaces that share a link."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "link", "set", "lo", "up")
    for router in ROUTERS:
        run("ip", "netns", "add", router)
    run("ip", "link", "add", "lan", "netns", "left", "type", "veth", "peer", "name", "lan", "netns", "right")
    for router in ROUTERS:
        within(router, "ip", "link", "set", "lan", "up")


def take(router):
    within(router, "ip", "address", "add", VIP, "dev", "lan")


def give_up(router):
    within(router, "ip", "address", "del", VIP, "dev", "lan")


def announce(router):
    """Sends an ARP request for the router's own address (RFC 5227), as keepalived on becoming master."""
    address = socket.inet_aton(VIP.split("/")[0])
    code = f"""
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("lan", 0x0806))
mac = s.getsockname()[4]
arp = bytes.fromhex("0001080006040001") + mac + {address!r} + bytes(6) + {address!r}
s.send(b"\\xff" * 6 + mac + b"\\x08\\x06" + arp)
"""
    within(router, sys.executable, "-c", code)


def scenario(watchers):
    """Runs the events. Yields the duration of each in seconds, and its name. The routers start as backups."""
    take("left")
    yield 40, "left has the address"
    give_up("left")
    take("right")
    yield 40, "fail-over"
    give_up("right")
    yield 60, "both give it up"
    take("left")
    yield 40, "left again"
    take("right")
    announce("right")
    yield 60, "both take it"
    give_up("right")
    yield 40, "right gives it up"
    watchers["right"].terminate()
    yield 120, "keepwatch ended on right"


def start(directory, program):
    """Starts Prometheus, and on each router keepwatch and a node exporter."""
    targets, watchers = [], {}
    for router, port in ROUTERS.items():
        textfiles = directory / router
        textfiles.mkdir()
        targets.append(f"{{targets: ['127.0.0.1:{port}'], labels: {{instance: {router}}}}}")
        watchers[router] = subprocess.Popen([
            program, "--foreground", "--router_id=lan", f"--conf_dir={textfiles}", f"--namespace={router}",
            "--monitor_interface=lan", f"--monitor_cidr={VIP}", "--no-announce", "--detect-split-brain",
            f"--metrics-file={textfiles}/keepwatch.prom", f"--log-file={textfiles}/log",
        ])
        exporter = [
            "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
            f"--collector.textfile.directory={textfiles}", f"--web.listen-address=127.0.0.1:{port}",
        ]
        subprocess.Popen(exporter, stderr=subprocess.DEVNULL)
    (directory / "prometheus.yml").write_text(f"""
global: {{scrape_interval: {SCRAPE}s, evaluation_interval: {SCRAPE}s}}
rule_files: [{pathlib.Path("cross/prometheus/alerts.yml").resolve()}]
scrape_configs: [{{job_name: node, static_configs: [{", ".join(targets)}]}}]
""")
    subprocess.Popen([
        "prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
        "--web.listen-address=127.0.0.1:9090",
    ], stderr=subprocess.DEVNULL)
    return watchers


def query(expression, began, ended):
    """Returns series by time: `[(labels, {time: value})]`."""
    parameters = {"query": expression, "start": began, "end": ended, "step": SCRAPE}
    url = "http://127.0.0.1:9090/api/v1/query_range?" + urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(url) as answer:
        series = json.load(answer)["data"]["result"]
    return [(one["metric"], {float(at) - began: float(value) for at, value in one["values"]}) for one in series]


def bars(times):
    """Returns successive times as (begin, length)."""
    found = []
    for at in sorted(times):
        if found and at - sum(found[-1]) < SCRAPE / 2:
            found[-1][1] += SCRAPE
        else:
            found.append([at, SCRAPE])
    return found


def lanes_of(active, alerts):
    """Returns the times of each state of a router or alert, by its name."""
    lanes = {f"{labels['instance']} is active": [("active", [at for at, value in values.items() if value])]
             for labels, values in active}
    for labels, values in alerts:
        name = f"{labels['alertname']}{': ' + labels['instance'] if 'instance' in labels else ''}"
        lanes.setdefault(name, []).append((labels["alertstate"], values))
    return lanes


def meaning(lanes):
    """Returns what the picture says: a line for each bar, with its begin and end in seconds."""
    return [f"{name}, {state}: {begin:.0f} to {begin + length:.0f} s" for name, states in lanes.items()
            for state, times in states for begin, length in bars(times)]


def differences(said, says):
    """Returns how two pictures differ: in their bars, or by more than ten seconds. Chance decides over short bars."""
    parts = [[re.fullmatch(r"(.*): (-?\d+) to (\d+) s", line).groups() for line in lines] for lines in (said, says)]
    parts = [[line for line in lines if int(line[2]) - int(line[1]) > 3 * SCRAPE] for lines in parts]
    names = [[name for name, *_ in lines] for lines in parts]
    if names[0] != names[1]:
        return [f"{PICTURE} has other bars:", *said, "now:", *says]
    times = [[[int(time) for time in times] for _, *times in lines] for lines in parts]
    far = [any(abs(one - other) > 10 for one, other in zip(*pair, strict=True)) for pair in zip(*times, strict=True)]
    return [f"{PICTURE}: {old}; now {new}" for old, new, is_far in zip(*parts, far, strict=True) if is_far]


def draw(events, lanes, length):
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "keepwatch", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(10, 0.42 * len(lanes) + 1.5))
    for row, shown in enumerate(lanes.values()):
        for state, times in shown:
            axes.broken_barh(bars(times), (row - 0.35, 0.7), color=COLOURS[state])
    for at, text in events:
        axes.axvline(at, color="#999999", linewidth=0.6, zorder=0)
        axes.text(at + 2, -0.65, text, rotation=20, fontsize=8, ha="left", va="bottom")
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.invert_yaxis()
    axes.set_xlim(0, length)
    axes.set_xlabel("seconds")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    axes.legend(handles, ["active", "pending", "firing"], loc="lower left", fontsize=8)
    metadata = {"Date": None, "Description": "\n".join(meaning(lanes))}
    figure.savefig(PICTURE, bbox_inches="tight", metadata=metadata)


def main():
    wire()
    # The processes end with their namespace.
    with tempfile.TemporaryDirectory() as name:
        watchers = start(pathlib.Path(name), sys.argv[1])
        while True:
            time.sleep(SCRAPE)
            with contextlib.suppress(OSError):
                if len(query("keepwatch_active", time.time() - SCRAPE, time.time())) == len(ROUTERS):
                    break
        began, events = time.time(), []
        for seconds, text in scenario(watchers):
            events.append((time.time() - began, text))
            time.sleep(seconds)
        ended = time.time()
        lanes = lanes_of(query("keepwatch_active", began, ended), query("ALERTS", began, ended))
        if sys.argv[2:] == ["--check"]:
            said = re.search("<dc:description>(.*?)</dc:description>", pathlib.Path(PICTURE).read_text(), re.DOTALL)
            sys.exit("\n".join(differences(said[1].split("\n"), meaning(lanes))) or 0)
        draw(events, lanes, ended - began)


if __name__ == "__main__":
    main()
