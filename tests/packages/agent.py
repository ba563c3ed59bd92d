"""An agent: answers 200 to each notification, and prints its state.

Usage: agent.py SOCKET GROUP
"""

import grp
import os
import re
import socket
import sys

path, group = sys.argv[1:]
os.makedirs(os.path.dirname(path), exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chown(path, 0, grp.getgrnam(group).gr_gid)
os.chmod(path, 0o660)
listener.listen()
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(4096)
    print(re.search(rb"X-Neutron-State: (\w+)", request)[1].decode(), flush=True)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    connection.close()
