"""`keepwatch-neutron place | restore | check | restart-monitors [DIRECTORY]`, as root."""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
USAGE = "usage: keepwatch-neutron place | restore | check | restart-monitors [DIRECTORY]"
PLACE = {"place": "in", "restore": "out", "check": "check"}


def keepwatch():
    os.execv(os.path.join(HERE, "neutron-keepalived-state-change"), ["keepwatch"] + sys.argv[1:])


def main():
    word, rest = (sys.argv + [""])[1], sys.argv[2:]
    if word == "restart-monitors" and len(rest) < 2:
        os.execv("/bin/sh", ["sh", os.path.join(HERE, "restart-monitors")] + rest)
    if word == "--version":
        keepwatch()
    if word == "--help":
        print(USAGE)
        return
    if word not in PLACE or rest:
        sys.exit(USAGE)
    # virtualenv sets the latter before version 20.
    if sys.prefix == sys.base_prefix and not hasattr(sys, "real_prefix"):
        sys.exit("keepwatch-neutron: this is no virtual environment; use deb or rpm for the system")
    os.execv("/bin/sh", ["sh", os.path.join(HERE, "place"), PLACE[word], sys.prefix])
