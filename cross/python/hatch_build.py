"""Gives the wheel its platforms: every pip that knows one accepts it, as a static program needs neither library."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platforms(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux2014_TARGET.musllinux_1_1_TARGET"
