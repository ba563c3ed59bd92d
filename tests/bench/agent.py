"""The server of Neutron 29's L3 agent, in what matters to its clients: a thread for each connection, a backlog of 5.

Usage: agent.py SOCKET. Prints the router's identity and the state of each request, a line each.
"""

import os
import socketserver
import sys

REPLY = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\nConnection: close\n"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        lines = self.request.recv(4096).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        line = f"{headers['X-Neutron-Router-Id']} {headers['X-Neutron-State']}\n"
        # One write: several threads may be here at once.
        os.write(1, line.encode())
        self.wfile.write(REPLY)


socketserver.ThreadingUnixStreamServer(sys.argv[1], Handler).serve_forever()
