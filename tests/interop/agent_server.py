"""Runs the server with which Neutron's L3 agent takes notifications of state changes.

Usage: agent_server.py STATE_PATH

It is the agent's own class. Instead of an agent, it has an object that prints a line for each
notification: the router's identity and the state.
"""

import importlib.util
import os
import sys

# Neutron's libraries, and processes that they start, print their log to standard output.
ARRIVALS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# Releases that use eventlet have their agents patched by importing this package, first of all.
EVENTLET = importlib.util.find_spec("neutron.cmd.eventlet")
if EVENTLET:
    import neutron.cmd.eventlet  # noqa: F401

from neutron.agent.l3 import ha
from neutron.common import config
from neutron.conf.agent.l3 import ha as ha_options
from oslo_config import cfg


class Printer:
    """Stands in for the agent."""

    def enqueue_state_change(self, router_id, state):
        # One write, as threads run concurrently.
        ARRIVALS.write(f"{router_id} {state}\n")
        ARRIVALS.flush()


def main():
    config.register_common_config_options()
    ha_options.register_l3_agent_ha_opts()
    if EVENTLET:
        from neutron.conf import wsgi

        wsgi.register_socket_opts()
    cfg.CONF([], project="neutron")
    cfg.CONF.set_override("state_path", sys.argv[1])
    server = ha.L3AgentKeepalivedStateChangeServer(Printer(), cfg.CONF)
    server.run()
    # With eventlet, run() does not return.
    server.wait()


main()
