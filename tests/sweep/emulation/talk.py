"""`talk.py serve|send|ask|shower|count ...`: two hosts talk; standard library only, so that it starts fast.

serve PORT: takes what comes and answers the end of it.       send ADDRESS PORT BYTES: prints the seconds it took.
echo PORT: answers each byte.                                 ask ADDRESS PORT: prints the least round trip of 10, in s.
count PORT SECONDS: prints how many datagrams come in that time.     shower ADDRESS PORT NUMBER: sends datagrams.
steer SECONDS: tells what listens that a message takes so much too long.
"""

import os
import socket
import sys
import time


def accepted(port: str) -> socket.socket:
    with socket.create_server(("", int(port))) as server:
        return server.accept()[0]


def connected(address: str, port: str) -> socket.socket:
    for _ in range(1000):
        try:
            return socket.create_connection((address, int(port)))
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise ConnectionRefusedError


def say(value: float) -> None:
    """In one piece: two may speak at once."""
    sys.stdout.write(f"{value}\n")


def main(what: str, *words: str) -> None:
    if what == "serve":
        link = accepted(words[0])
        while link.recv(1 << 16):
            pass
        link.sendall(b".")
    elif what == "send":
        link = connected(*words[:2])
        begun = time.perf_counter()
        link.sendall(bytes(int(words[2])))
        link.shutdown(socket.SHUT_WR)
        link.recv(1)
        say(time.perf_counter() - begun)
    elif what == "echo":
        link = accepted(words[0])
        while byte := link.recv(1):
            link.sendall(byte)
    elif what == "ask":
        link = connected(*words)
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            link.sendall(b".")
            link.recv(1)
            times.append(time.perf_counter() - begun)
        say(min(times))
    elif what == "steer":
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(os.environ["GRADSWEEP_STEERING"])
            link.sendall(f"{words[0]}\n".encode())
            link.recv(9)
    elif what == "count":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            link.bind(("", int(words[0])))
            link.settimeout(float(words[1]))
            count = 0
            try:
                while link.recv(2000):
                    count += 1
            except TimeoutError:
                say(count)
    elif what == "shower":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            for _ in range(int(words[2])):
                link.sendto(b".", (words[0], int(words[1])))
                time.sleep(0.0005)


main(*sys.argv[1:])
