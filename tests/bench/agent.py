"""The server of Neutron 29's L3 agent, in what matters to its clients: a thread for each connection, a backlog of 5.

Usage: agent.py SOCKET. Prints for each request when it has read that, by `time.monotonic_ns`, the router's identity and
the state.
"""

import os
import socketserver
import sys
import time

REPLY = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\nConnection: close\n"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        lines = self.request.recv(4096).decode().split("\r\n")
        # The Python generation writes the names in small letters.
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        line = f"{time.monotonic_ns()} {headers['x-neutron-router-id']} {headers['x-neutron-state']}\n"
        # One write: several threads may be here at once.
        os.write(1, line.encode())
        self.wfile.write(REPLY)


socketserver.ThreadingUnixStreamServer(sys.argv[1], Handler).serve_forever()
