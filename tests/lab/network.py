"""Nodes of a network on one machine: network namespaces on a bridge, with a way to a port of this machine's loopback."""
import contextlib
import ctypes
import os
import socket
import threading

from .programs import run

CLONE_NEWNET = 0x40000000
NETWORK = "10.213.77"


class NodeNetwork:
    """`count` namespaces, with one address each; the machine has `gateway` among them."""

    def __init__(self, count):
        self.name = f"fpfs{os.getpid() % 100000}"
        self.gateway = f"{NETWORK}.1"
        self.addresses = [f"{NETWORK}.{number + 2}" for number in range(count)]
        self.namespaces = [f"{self.name}n{number}" for number in range(count)]
        self.forwarders = []
        try:
            run("ip", "link", "add", self.name, "type", "bridge")
            run("ip", "address", "add", f"{self.gateway}/24", "dev", self.name)
            run("ip", "link", "set", self.name, "up")
            for namespace, address in zip(self.namespaces, self.addresses):
                run("ip", "netns", "add", namespace)
                run("ip", "link", "add", f"{namespace}h", "type", "veth", "peer", "name", "eth0", "netns", namespace)
                run("ip", "link", "set", f"{namespace}h", "master", self.name, "up")
                for words in (["address", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                              ["link", "set", "lo", "up"]):
                    run("ip", "-n", namespace, *words)
        except BaseException:
            self.close()
            raise

    def inside(self, number):
        """What runs a command in a namespace, and in the mount namespace of everybody."""
        return ["nsenter", f"--net=/run/netns/{self.namespaces[number]}"]

    def enter(self, number):
        """This process, from now on."""
        with open(f"/run/netns/{self.namespaces[number]}", "rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def forward(self, port):
        """The namespaces reach a port of the loopback at the gateway."""
        self.forwarders.append(_Forwarder(self.gateway, port))

    def close(self):
        for forwarder in self.forwarders:
            forwarder.close()
        for namespace in self.namespaces:
            run("ip", "netns", "del", namespace, check=False)
        run("ip", "link", "del", self.name, check=False)


class _Forwarder:
    def __init__(self, address, port):
        self.port = port
        self.listener = socket.create_server((address, port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self.listener.close()
