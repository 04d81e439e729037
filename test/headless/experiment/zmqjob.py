#!/usr/bin/python3
"""One process of the job, with real ZeroMQ: broker, worker, oneshot or stall.

zmqjob.py ROLE T0 [options]; everything starts at T0 (seconds since the epoch) plus --start. It prints one JSON object.
"""
import argparse
import json
import socket
import sys
import time

import zmq

p = argparse.ArgumentParser()
p.add_argument("role")
p.add_argument("t0", type=float)
p.add_argument("--start", type=float, default=0, help="seconds after T0")
p.add_argument("--port", type=int, default=8050)
p.add_argument("--name", default="")
p.add_argument("--timeout", type=int, default=0, help="ZMQ_CONNECT_TIMEOUT, ms; 0 = the kernel's")
p.add_argument("--limit", type=float, default=60, help="give up after this many seconds")
p.add_argument("--peer", default="", help="stall: address of a healthy broker")
a = p.parse_args()
begin = a.t0 + a.start


def wait_for_start():
    while (left := begin - time.time()) > 0:
        time.sleep(left)
    return time.time() - begin


def say(**kw):
    print(json.dumps(kw), flush=True)


def broker():
    s = zmq.Context().socket(zmq.REP)
    s.bind("tcp://*:%d" % a.port)
    end = a.t0 + a.limit + 5
    while time.time() < end:
        if s.poll(200):
            s.recv()
            s.send(b"welcome")


def worker():
    ctx = zmq.Context()
    late = wait_for_start()
    s = ctx.socket(zmq.REQ)
    s.setsockopt(zmq.LINGER, 0)
    if a.timeout:
        s.setsockopt(zmq.CONNECT_TIMEOUT, a.timeout)
    s.connect("tcp://%s:%d" % (a.name, a.port))
    s.send(b"hello")
    ok = s.poll(int(1000 * max(0, a.t0 + a.limit - time.time())))
    say(ok=bool(ok), seconds=time.time() - a.t0, late=late)


def oneshot():
    late = wait_for_start()
    try:
        socket.getaddrinfo(a.name, a.port, socket.AF_INET, socket.SOCK_STREAM)
        ok = True
    except socket.gaierror:
        ok = False
    say(ok=ok, seconds=time.time() - a.t0, late=late)


def stall():
    """The longest silence of a healthy socket whose context has another one that waits for a name."""
    ctx = zmq.Context()
    healthy = ctx.socket(zmq.DEALER)
    healthy.setsockopt(zmq.LINGER, 0)
    healthy.connect("tcp://%s:%d" % (a.peer, a.port))
    healthy.send_multipart([b"", b"x"])
    if not healthy.poll(10000):
        say(ok=False, seconds=-1, late=0)
        return
    healthy.recv_multipart()
    late = wait_for_start()
    s = ctx.socket(zmq.REQ)
    s.setsockopt(zmq.LINGER, 0)
    s.connect("tcp://%s:%d" % (a.name, a.port + 1))
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
    say(ok=True, seconds=longest, late=late)


{"broker": broker, "worker": worker, "oneshot": oneshot, "stall": stall}[a.role]()
sys.exit(0)
