"""Neutron's own handling of a state change, in an agent that has just started and learns its router late.

Usage: late_agent.py STATE_PATH ROUTER_ID

The server, the handler, the metadata driver and the process monitor are the agent's own; the router, the RPC to the
server and the extensions are as much of them as a state change takes. The router is learnt when a line comes on
standard input. Printed, a line each: `received STATE` when a notification is answered, `forgotten` when that was about
a router not known yet, and `done STATE` when the extensions hear of a change, which is the last thing that the agent
does for it.
"""

import os
import sys
import threading
import types

# Neutron's libraries, and processes that they start, print their log to standard output.
EVENTS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from neutron.agent import l3_agent
from neutron.agent.l3 import ha
from neutron.agent.linux import external_process
from neutron.agent.metadata import driver
from neutron.conf.agent import common as agent_options
from oslo_config import cfg


def tell(line):
    EVENTS.write(f"{line}\n")
    EVENTS.flush()


def ignore(*_):
    """Stands for what is beyond this agent."""


class Extensions:
    @staticmethod
    def ha_state_change(_context, change):
        tell(f"done {change['state']}")


class Agent(ha.AgentMixin):
    """The agent's part for HA routers."""

    # Nothing of the rest of an agent is initialised.
    def __init__(self, conf):
        self.conf = conf
        self.context = None
        self.use_ipv6 = False
        self.router_info = {}
        self.metadata_driver = driver.MetadataDriver
        self.process_monitor = external_process.ProcessMonitor(conf, "router")
        self.l3_ext_manager = Extensions()
        self.state_change_notifier = types.SimpleNamespace(queue_event=ignore)
        self._transition_states = {}
        self._transition_state_mutex = threading.Lock()

    def enqueue_state_change(self, router_id, state):
        super().enqueue_state_change(router_id, state)
        tell(f"received {state}")

    def _get_router_info(self, router_id):
        info = super()._get_router_info(router_id)
        if info is None:
            tell("forgotten")
        return info


def main():
    state_path, router_id = sys.argv[1:]
    l3_agent.register_opts(cfg.CONF)
    agent_options.register_root_helper()
    cfg.CONF([], project="neutron")
    cfg.CONF.set_override("state_path", state_path)
    cfg.CONF.set_override("external_pids", f"{state_path}/pids")
    cfg.CONF.set_override("root_helper", "", "AGENT")
    cfg.CONF.set_override("helper_command", f"{sys.prefix}/bin/privsep-helper", "privsep")
    cfg.CONF.set_override("metadata_proxy_user", "nobody")
    cfg.CONF.set_override("metadata_proxy_group", "nogroup")
    agent = Agent(cfg.CONF)
    threading.Thread(target=agent._start_keepalived_notifications_server, daemon=True).start()
    sys.stdin.readline()
    agent.router_info[router_id] = types.SimpleNamespace(
        router_id=router_id,
        router={},
        ns_name=f"qrouter-{router_id}",
        agent=types.SimpleNamespace(host="node"),
        ex_gw_port=None,
        enable_radvd=ignore,
        disable_radvd=ignore,
    )
    tell("learnt")
    sys.stdin.readline()
    agent.metadata_driver.destroy_monitored_metadata_proxy(
        agent.process_monitor, router_id, cfg.CONF, f"qrouter-{router_id}"
    )
    agent.process_monitor.stop()
    os._exit(0)


main()
