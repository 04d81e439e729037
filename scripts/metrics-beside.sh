#!/usr/bin/env bash
# metrics-beside.sh [MINUTES]: runs kube-proxy and Fairlead, one after the other, through the same changes of a real API server, four
# a second for MINUTES minutes (default 5), and prints each metric of kube-proxy's with both values, sorted. It fails for a metric
# that Fairlead does not serve, or serves with another type or other labels, unless docs/metrics.md explains why.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-5}
[ "$(id -u)" = 0 ] || { echo "metrics-beside.sh needs root: it makes network namespaces" >&2; exit 1; }
make --no-print-directory build
bash test/cluster/build.sh etcd kube-apiserver kube-proxy
cd test/cluster
export FAIRLEAD_BIN=${FAIRLEAD_BIN:-$PWD/../../bin/fairlead} FAIRLEAD_BESIDE_CHANGES=$((minutes * 240))
go test -mod=mod -count=1 -v -timeout $((2 * minutes + 10))m -run 'TestEndToEnd/MetricsBesideKubeProxy$' .
