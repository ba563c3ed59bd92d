"""Writes the table of the last whole run: `table.py WORK [DOCUMENT]`.

The table goes to table.md in WORK, and between the two marks in the document, if given. Fails unless
both programs have run every test of the list.
"""

import json
import pathlib
import statistics
import sys

PROGRAMS = {"neutron": "Neutron's own", "keepwatch": "keepwatch"}
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


def listed():
    """Returns the tests of the list."""
    text = (pathlib.Path(__file__).parent / "tests.txt").read_text()
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [words[0] for words in lines if words]


def results(work, program):
    """Returns the results of each test with a program."""
    path = pathlib.Path(work, program, "results.json")
    outcomes = {outcome["test"]: outcome for outcome in json.loads(path.read_text())}
    if missing := [name for name in listed() if name not in outcomes]:
        sys.exit(f"{program} has not run {', '.join(missing)}")
    return [outcomes[name] for name in listed()]


def milliseconds(times):
    """Formats times, with a dash for a missing one."""
    return ", ".join("–" if each is None else f"{each:,.0f}" for each in times)


def row(cells):
    return f"| {' | '.join(cells)} |\n"


def summary(outcomes):
    """Returns the figures of a program over all tests."""
    verdicts = [outcome["verdict"] for outcome in outcomes]
    times = [each for outcome in outcomes for each in outcome["reports"]]
    known = [each for each in times if each is not None]
    leaving = [outcome["left"] for outcome in outcomes if outcome["left"]]
    return [
        f"{verdicts.count('ok')} of {len(verdicts)}",
        str(verdicts.count("kernel")),
        str(verdicts.count("differs")),
        str(verdicts.count("unstable")),
        str(verdicts.count("FAILED")),
        f"{sum(outcome['seconds'] for outcome in outcomes):,.0f} s",
        str(sum(outcome["monitors"] for outcome in outcomes)),
        f"{len(known)} of {len(times)}",
        f"{statistics.median(known):,.0f} ms",
        f"{max(known):,.0f} ms",
        str(len(leaving)),
        str(sum(leaving)),
    ]


SUMMARY = [
    "passed",
    "skipped, as the kernel lacks a feature",
    "different by decision",
    "failed, as a test that Neutron marks as unstable may",
    "failed",
    "time, all tests",
    "monitors started",
    "attributable first reports, handled by the agent",
    "from the command that starts one to its first report, median",
    "from the command that starts one to its first report, worst",
    "tests with processes of a monitor left, half a second after the end",
    "such processes",
]


def table(work):
    """Returns the whole table in Markdown."""
    of = {program: results(work, program) for program in PROGRAMS}
    text = row(["", *PROGRAMS.values()]) + row(["---", *["---:"] * len(PROGRAMS)])
    text += "".join(row(line) for line in zip(SUMMARY, *map(summary, of.values())))
    heads = [f"{name}: {what}" for name in PROGRAMS.values() for what in ("result", "first reports, ms", "left")]
    text += "\n" + row(["test", *heads]) + row(["---", *["---", "---:", "---:"] * len(PROGRAMS)])
    for outcomes in zip(*of.values()):
        cells = [outcomes[0]["test"].replace(".", ".<wbr>")]
        for outcome in outcomes:
            left = str(outcome["left"] or "")
            result = f"{outcome['verdict']}, {outcome['seconds']:.1f} s"
            cells += [result, milliseconds(outcome["reports"]), left]
        text += row(cells)
    return text


def main():
    work, *documents = sys.argv[1:]
    text = table(work)
    pathlib.Path(work, "table.md").write_text(text)
    print(text.partition("\n\n")[0])
    for path in map(pathlib.Path, documents):
        before, _, rest = path.read_text().partition(BEGIN)
        _, end, after = rest.partition(END)
        if not end:
            sys.exit(f"no {BEGIN.strip()} and {END.strip()} in {path}")
        path.write_text(before + BEGIN + text + END + after)


main()
