#!/usr/bin/env bash
# guest.sh ARGS... : bench-modes inside the test kernel. The programs that it and kube-proxy start repeatedly are in the guest's memory.
# kube-proxy's ipvs mode starts ipset once for each Service: with a read from the host each time, its first sync with 1 000 Services took
# longer than the trial.
. test/vm/memory.sh
in_memory /usr/bin/bash /usr/bin/curl "$FAIRLEAD_CACHE/bin/kube-proxy" || exit 125
ulimit -n 65536 # userspace mode has a socket for each port; a kernel starts its first program with 4096 at most, systemd with half a million
exec bin/bench-modes "$@"
