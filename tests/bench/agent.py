"""Behaves like the server of Neutron 29's L3 agent: a thread for each connection, and a backlog of 5.

Usage: agent.py SOCKET. Prints for each request the time after reading it (`time.monotonic_ns`), the router's identity
and the state.
"""

import os
import socketserver
import sys
import time

REPLY = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\nConnection: close\n"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        lines = self.request.recv(4096).decode().split("\r\n")
        # The Python generation writes the names in lower case.
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        line = f"{time.monotonic_ns()} {headers['x-neutron-router-id']} {headers['x-neutron-state']}\n"
        # One write, as threads run concurrently.
        os.write(1, line.encode())
        self.wfile.write(REPLY)


socketserver.ThreadingUnixStreamServer(sys.argv[1], Handler).serve_forever()
