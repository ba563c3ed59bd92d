"""Creates tables and a picture from measure.py's files."""

import os
import platform
import re
import textwrap
from pathlib import Path

import matplotlib
import pandas

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "keepwatch", "svg.fonttype": "none", "font.size": 9}
from matplotlib import pyplot

NAMES = {
    "floor": "floor",
    "floor, same job": "floor, same job",
    "floor, prepared": "floor, prepared",
    "keepwatch": "keepwatch",
    "shell": "shell generation",
    "python": "Python generation",
}
# A figure, the other candidate, and the highest allowed ratio.
RATIOS = [
    ("VIP to the state file, ms", "floor, same job", 0.8),
    ("VIP to the state file on a disk, ms", "floor, same job", 0.3),
    ("VIP to the agent, ms", "floor, same job", 1.0),
    ("CPU time of a change, ms", "floor, same job", 1.25),
    ("p99 while all cores are busy, ms", "floor", 1.3),
    ("1,000 addresses: last announced, ms", "floor", 2),
]
# The highest allowed ratio when this many routers fail over.
FAIL_OVERS = {250: 1.5, 1000: 1.6}
LIMITS = [
    ("system calls of a change", 20),
    ("1,000 addresses: first announced, ms", 1),
    ("1,000 addresses: last announced, ms", 30),
    ("change amid announcements to the state file, ms", 2),
    ("change amid announcements to the agent, ms", 2),
    ("failed command beside 2,000 processes, times a successful one", 1.5),
    ("its CPU time beside 2,000 processes, times a successful one's", 1.5),
    ("major faults of the first after reclaim", 0),
    ("fail-overs not reported, %", 0),
    ("memory of 250 routers (PSS), MB", 30),
    ("on disk, kB", 400),
]
PAPER = [
    "VIP to the state file, ms",
    "VIP to the state file on a disk, ms",
    "VIP to the agent, ms",
    "p99 while all cores are busy, ms",
    "first after memory was reclaimed, ms",
    "CPU time of a change, ms",
    "start to the first report, ms",
    "1,000 addresses: first announced, ms",
    "1,000 addresses: last announced, ms",
    "250 routers fail over, ms",
    "1000 routers fail over, ms",
    "fail-overs not reported, %",
    "memory of 250 routers (PSS), MB",
    "on disk, kB",
]


def number(value):
    """Formats three significant digits."""
    if pandas.isna(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def figures_of_changes(changes):
    """Returns a series for each figure, with a number for each candidate and run."""

    def each(phase, column, how):
        rows = changes[changes.phase == phase].dropna(subset=[column])
        return rows.groupby(["candidate", "run"])[column].agg(how)

    def p99(values):
        return values.quantile(0.99)

    return {
        "VIP to the state file, ms": each("change", "file_ms", "median"),
        "VIP to the state file, p99, ms": each("change", "file_ms", p99),
        "VIP to the state file on a disk, ms": each("disk", "file_ms", "median"),
        "VIP to the agent, ms": each("change", "agent_ms", "median"),
        "VIP to the agent, p99, ms": each("change", "agent_ms", p99),
        "p99 while all cores are busy, ms": each("loaded", "agent_ms", p99),
        "first after memory was reclaimed, ms": each("reclaimed", "agent_ms", "median"),
        "major faults of the first after reclaim": each("reclaimed", "major_faults", "mean"),
        "CPU time of a change, ms": each("change", "cpu_ms", "mean"),
        "context switches of a change": each("change", "switches", "mean"),
        "system calls of a change": each("change", "system_calls", "median"),
        "start to the state file, ms": each("start", "file_ms", "median"),
        "start to the first report, ms": each("start", "agent_ms", "median"),
    }


def figures_of_announcements(rows):
    def median(phase, column):
        return rows[rows.phase == phase].groupby(["candidate", "run"])[column].median()

    return {
        "1,000 addresses: first announced, ms": median("announced", "first_ms"),
        "1,000 addresses: last announced, ms": median("announced", "last_ms"),
        "change amid announcements to the state file, ms": median("amid", "file_ms"),
        "change amid announcements to the agent, ms": median("amid", "agent_ms"),
    }


def figures_of_conntrackd(rows):
    figures = {}
    for count, beside in rows.groupby("others"):
        by_code = beside.set_index(["exit_code", "candidate", "run"])
        succeeded, failed = by_code.loc[0], by_code.loc[1]
        figures |= {
            f"command of conntrackd beside {count:,} processes, ms": succeeded.ms,
            f"its CPU time beside {count:,} processes, ms": succeeded.cpu_ms,
            f"failed command beside {count:,} processes, times a successful one": failed.ms / succeeded.ms,
            f"its CPU time beside {count:,} processes, times a successful one's": failed.cpu_ms / succeeded.cpu_ms,
        }
    return figures


def figures_of_fail_overs(fail_overs):
    figures = {}
    for count, rows in fail_overs.groupby("routers"):
        by_run = rows.groupby(["candidate", "run"])
        for change, name in (("up", "fail over"), ("down", "go back")):
            of_change = rows[rows.change == change]
            figures[f"{count} routers {name}, ms"] = of_change.groupby(["candidate", "run"]).ms.median()
        figures[f"{count} routers: not reported, %"] = by_run.lost.mean() * 100 / count
        figures[f"{count} routers: attempts for each report"] = by_run.failures.mean() + 1
        figures[f"{count} routers: CPU time of each report, ms"] = by_run.cpu_ms.mean()
    shares = fail_overs.assign(lost=fail_overs.lost * 100 / fail_overs.routers)
    figures["fail-overs not reported, %"] = shares.groupby(["candidate", "run"]).lost.mean()
    return figures


def figures_of_sizes(sizes):
    sizes = sizes.assign(run=1).set_index(["candidate", "run"])
    of_250 = 250 / sizes.routers / 1000
    return {
        "memory of 250 routers (PSS), MB": sizes.Pss * of_250,
        "memory of 250 routers (private), MB": (sizes.Private_Clean + sizes.Private_Dirty) * of_250,
        "processes of 250 routers": sizes.processes * 250 / sizes.routers,
        "on disk, kB": sizes.own / 1000,
        "with programs and libraries it needs, kB": sizes.needed / 1000,
    }


def table(figures, candidates, cell):
    lines = ["| | " + " | ".join(NAMES[one] for one in candidates) + " |", "| --- |" + " ---: |" * len(candidates)]
    for name, values in figures.items():
        if values.notna().any():
            lines.append(f"| {name} | " + " | ".join(cell(values, one) for one in candidates) + " |")
    return "\n".join(lines) + "\n"


def runs_of(values, candidate):
    return values.xs(candidate) if candidate in values.index.get_level_values(0) else pandas.Series(dtype=float)


def median(values, candidate):
    return number(runs_of(values, candidate).median())


def with_range(values, candidate):
    """Formats median, minimum and maximum, and the ratio to the floor in the same run."""
    runs, floor = runs_of(values, candidate), runs_of(values, "floor")
    text = number(runs.median())
    if runs.max() > runs.min():
        text += f" ({number(runs.min())}–{number(runs.max())})"
    if candidate != "floor" and runs.notna().any() and (floor > 0).any():
        text += f"<br>×{number((runs / floor).median())}"
    return text


def bars(figures):
    lines = ["| figure of keepwatch | bar | measured | met |", "| --- | --- | --- | --- |"]

    def add(name, limit, measured):
        met = "yes" if measured <= limit else "no"
        lines.append(f"| {name} | <= {number(limit)} | {number(measured)} | {met} |")

    fail_overs = [(f"{count} routers fail over, ms", "floor", limit) for count, limit in FAIL_OVERS.items()]
    for name, other, limit in RATIOS + fail_overs:
        if name in figures:
            ratio = runs_of(figures[name], "keepwatch") / runs_of(figures[name], other)
            if ratio.notna().any():
                add(f"{name}, times the {other}'s", limit, ratio.median())
    for name, limit in LIMITS:
        if name in figures:
            add(name, limit, runs_of(figures[name], "keepwatch").max())
    return "\n".join(lines) + "\n"


def picture(changes, figures, file):
    drawing, (times, memory) = pyplot.subplots(1, 2, figsize=(10, 4), width_ratios=[2, 1])
    candidates = [one for one in NAMES if one in set(changes.candidate)]
    for candidate in candidates:
        agent = changes[(changes.candidate == candidate) & (changes.phase == "change")].agent_ms
        times.ecdf(agent, label=NAMES[candidate])
    times.set(xscale="log", xlabel="ms from the VIP's change to the agent", ylabel="share of the changes")
    times.legend(loc="center", bbox_to_anchor=(0.65, 0.4))
    size = figures["memory of 250 routers (PSS), MB"]
    medians = [runs_of(size, one).median() for one in candidates]
    drawn = memory.barh([NAMES[one] for one in candidates], medians)
    memory.bar_label(drawn, [number(value) for value in medians], padding=2)
    memory.invert_yaxis()
    memory.margins(x=0.3)
    memory.set(xscale="log", xlabel="MB of 250 routers (PSS)")
    drawing.tight_layout()
    drawing.savefig(file, metadata={"Date": None})


def machine():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cpu = cpu[1] if cpu else platform.machine()
    return f"{cpu}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0].split('+')[0]}"


FIGURES = {
    "changes": figures_of_changes,
    "announcements": figures_of_announcements,
    "conntrackd": figures_of_conntrackd,
    "fail-over": figures_of_fail_overs,
    "memory": figures_of_sizes,
}
PARTS = [*FIGURES, "growth"]


def print_only(raw, part):
    """Prints the figures of one of the files."""
    rows = pandas.read_csv(raw / f"{part}.csv")
    figures = FIGURES[part](rows)
    print(table(figures, [one for one in NAMES if one in set(rows.candidate)], with_range))
    print(bars(figures))


GROWTH = {
    "ms": "ms to the last report",
    "report_cpu_ms": "ms of CPU time of each report",
    "pss_kb": "kB of memory of each (PSS)",
    "idle_cpu_ms": "ms of CPU time of each in a second, at rest",
    "mounts_cpu_ms": "ms of CPU time of each in a second, with 20 new namespaces a second",
}
GROWTH_OF_ANNOUNCEMENTS = {
    "first_ms": "ms to the first announcement",
    "last_ms": "ms to the last announcement",
}


def growth(rows, by, names, axes):
    """Returns a table of how figures grow with a number, and draws them."""
    medians = rows.groupby([by, "candidate"])[list(names)].median().unstack()
    lines = [f"| {by} | " + " | ".join(f"{name}: floor | keepwatch" for name in names.values()) + " |"]
    lines.append("| ---: |" + " ---: |" * (2 * len(names)))
    for count, row in medians.iterrows():
        cells = [number(row[name, one]) for name in names for one in ("floor", "keepwatch")]
        lines.append(f"| {count:,} | " + " | ".join(cells) + " |")
    for axis, (name, label) in zip(axes, names.items()):
        for one in ("floor", "keepwatch"):
            axis.plot(medians.index, medians[name, one], marker="o", label=NAMES[one])
        axis.set(xscale="log", xlabel=by, title="\n".join(textwrap.wrap(label, 32)))
        # Zero has no place on a logarithmic axis.
        axis.set_yscale("symlog", linthresh=0.01) if medians[name].min().min() <= 0 else axis.set_yscale("log")
        axis.legend()
    return "\n".join(lines) + "\n"


def publish_growth(raw, output, load):
    """Writes tables and a picture of how the cost grows with the number of routers and of addresses."""
    rows = pandas.read_csv(raw / "growth.csv")
    announced = pandas.read_csv(raw / "growth-announcements.csv")
    count = len(GROWTH) + len(GROWTH_OF_ANNOUNCEMENTS)
    drawing, axes = pyplot.subplots(1, count, figsize=(4 * count, 3.5))
    lost = rows.groupby("candidate").lost.sum()
    text = f"""# How the cost grows

Written by `tests/bench/run` on {machine()}, with a load average of {load:.2f} when it began;
medians of {rows.run.max()} runs. [Picture](growth.svg). Not reported: {lost["keepwatch"]} by keepwatch, {lost["floor"]} by
the floor.

## With the routers of a machine

{growth(rows, "routers", GROWTH, axes)}
## With the addresses that one router announces

{growth(announced[announced.phase == "announced"], "addresses", GROWTH_OF_ANNOUNCEMENTS, axes[len(GROWTH):])}"""
    (output / "growth.md").write_text(text)
    print(text)
    drawing.tight_layout()
    drawing.savefig(output / "growth.svg", metadata={"Date": None})


def publish(raw, output, paper, load):
    rows = {part: pandas.read_csv(raw / f"{part}.csv") for part in FIGURES}
    figures = {name: values for part, of in FIGURES.items() for name, values in of(rows[part]).items()}
    changes = rows["changes"]
    text = f"""# keepwatch beside what it replaces

Written by `tests/bench/run` on {machine()}, with a load average of {load:.2f} when it began;
[picture](results.svg). [docs/benchmarks.md](../../docs/benchmarks.md) says what is measured and how.

A figure is the median of {changes.run.max()} runs, in parentheses the least and the most of them; behind × how many
times the floor's in the same run.

{table(figures, NAMES, with_range)}
## Bars

{bars(figures)}"""
    (output / "results.md").write_text(text)
    picture(changes, figures, output / "results.svg")
    print(text)
    if paper:
        mark = "<!-- tests/bench/run -->\n"
        before, rest = paper.read_text().split(mark)
        after = rest.split("<!-- end -->")[1]
        rows = table({name: figures[name] for name in PAPER}, NAMES, median)
        paper.write_text(f"{before}{mark}{rows}<!-- end -->{after}")
