#!/usr/bin/python3
"""One process of the experiment, with real ZeroMQ: a broker, or a pod's share of several jobs at once.

zmqjob.py ROLE T0 [options] NAME:PORT:TIMEOUT…; everything starts at T0 (seconds since the epoch) plus --start. Each job has a ZeroMQ context,
so an I/O thread, of its own. It prints one JSON object a job. TIMEOUT is ZMQ_CONNECT_TIMEOUT in ms, 0 = the kernel's.
"""
import argparse
import json
import socket
import threading
import time

import zmq

p = argparse.ArgumentParser()
p.add_argument("role")
p.add_argument("t0", type=float)
p.add_argument("--start", type=float, default=0, help="seconds after T0")
p.add_argument("--limit", type=float, default=60, help="give up after this many seconds")
p.add_argument("--peer", default="", help="stall: address of a healthy broker")
p.add_argument("jobs", nargs="+")
a = p.parse_args()
begin = a.t0 + a.start
lock = threading.Lock()


def wait_for_start():
    while (left := begin - time.time()) > 0:
        time.sleep(left)
    return time.time() - begin


def say(name, **kw):
    with lock:
        print(json.dumps(dict(name=name, **kw)), flush=True)


def broker(jobs):
    """Serves all ports of all jobs, and the healthy one of stall next to each."""
    ctx, poller = zmq.Context(), zmq.Poller()
    for _, port, _ in jobs:
        for n in (port, port + 1):
            s = ctx.socket(zmq.REP)
            s.bind("tcp://*:%d" % n)
            poller.register(s, zmq.POLLIN)
    end = a.t0 + a.limit + 5
    while time.time() < end:
        for s, _ in poller.poll(200):
            s.recv()
            s.send(b"welcome")


def worker(name, port, timeout):
    ctx = zmq.Context()
    late = wait_for_start()
    s = ctx.socket(zmq.REQ)
    s.setsockopt(zmq.LINGER, 0)
    if timeout:
        s.setsockopt(zmq.CONNECT_TIMEOUT, timeout)
    s.connect("tcp://%s:%d" % (name, port))
    s.send(b"hello")
    ok = s.poll(int(1000 * max(0, a.t0 + a.limit - time.time())))
    say(name, ok=bool(ok), seconds=time.time() - a.t0, late=late)


def oneshot(name, port, _):
    late = wait_for_start()
    try:
        socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)
        ok = True
    except socket.gaierror:
        ok = False
    say(name, ok=ok, seconds=time.time() - a.t0, late=late)


def stall(name, port, _):
    """The longest silence of a healthy socket whose context has another one that waits for a name."""
    ctx = zmq.Context()
    healthy = ctx.socket(zmq.DEALER)
    healthy.setsockopt(zmq.LINGER, 0)
    healthy.connect("tcp://%s:%d" % (a.peer, port + 1))
    healthy.send_multipart([b"", b"x"])
    if not healthy.poll(10000):
        say(name, ok=False, seconds=-1, late=0)
        return
    healthy.recv_multipart()
    late = wait_for_start()
    s = ctx.socket(zmq.REQ)
    s.setsockopt(zmq.LINGER, 0)
    s.connect("tcp://%s:%d" % (name, port))
    s.send(b"hello")
    longest, end = 0.0, begin + a.limit
    while time.time() < end:
        t = time.time()
        healthy.send_multipart([b"", b"x"])
        if not healthy.poll(int(1000 * max(1, end - t))):
            break
        healthy.recv_multipart()
        longest = max(longest, time.time() - t)
        time.sleep(0.005)
    say(name, ok=True, seconds=longest, late=late)


def main():
    jobs = []
    for text in a.jobs:
        name, port, timeout = text.rsplit(":", 2)
        jobs.append((name, int(port), int(timeout)))
    if a.role == "broker":
        broker(jobs)
        return
    role = {"worker": worker, "oneshot": oneshot, "stall": stall}[a.role]
    threads = [threading.Thread(target=role, args=j) for j in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


main()
