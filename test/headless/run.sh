#!/usr/bin/env bash
# run.sh [ROUNDS] : the headless experiment (make experiment-headless). Needs root, for network namespaces; about 10 min a round.
# Real ZeroMQ (Debian's python3-zmq), real CoreDNS (built by build.sh), Fairlead's server; results go to docs/experiments/headless.
set -euo pipefail
rounds=${1:-3}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export FAIRLEAD_CACHE=${FAIRLEAD_CACHE:-$root/.cache}
if ! /usr/bin/python3 -c 'import zmq, matplotlib' 2>/dev/null; then
  apt-get install -y --no-install-recommends python3-zmq python3-matplotlib
fi
bash "$here/build.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"
go build -o "$work/" ./test/headless/dnsd ./test/headless/load ./test/headless/experiment
cp "$FAIRLEAD_CACHE/bin/coredns" "$here/experiment/zmqjob.py" "$work/"
# Runs with priority over other work of the machine: it takes about a minute and a half, and is idle for most of it.
chrt -r 1 "$work/experiment" -what load -rounds 7 -bin "$work" -out "$work/load.json"
"$work/experiment" -what sweep -rounds "$rounds" -bin "$work" -out "$work/sweep.json"
out=$root/docs/experiments/headless
mkdir -p "$out"
cp "$work/load.json" "$work/sweep.json" "$out/"
/usr/bin/python3 "$here/plot.py" "$out/sweep.json" "$out/load.json" "$out"
echo "results: docs/experiments/headless/results.md"
