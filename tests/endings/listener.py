"""A stranger's server: listens on the given ports, answers everything with OK, keeps all that it hears in a file.

python -I listener.py FILE PORT...
"""

import selectors
import socket
import sys
from pathlib import Path


def main() -> None:
    heard = Path(sys.argv[1])
    selector = selectors.DefaultSelector()
    for port in map(int, sys.argv[2:]):
        selector.register(socket.create_server(("127.0.0.1", port)), selectors.EVENT_READ, "listener")
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if key.data == "listener":
                selector.register(sock.accept()[0], selectors.EVENT_READ, "peer")
                continue
            content = sock.recv(65536)
            if content:
                with heard.open("ab") as file:
                    file.write(content)
                sock.sendall(b"+OK\r\n")
            else:
                selector.unregister(sock)
                sock.close()


if __name__ == "__main__":
    main()
