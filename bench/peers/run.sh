#!/usr/bin/env bash
# run.sh : build upstream and the harness, measure, print tables. Needs root. The Fairlead binary comes from `make build`.
#   SIZES="1000 10000" E=10 SUBJECTS="nftables fairlead" (also iptables-nft iptables-legacy) CHURN=60s CONNECT=3s SINGLES=5 SYNC_LIMIT=10m
#   FAIRLEAD_FLAGS="--proxy-mode=iptables": measure another mode of Fairlead
#   OUT=bench/results/peers.jsonl NICE=-10 BRIEF_ABOVE=20000
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
cache=${FAIRLEAD_CACHE:-$root/.cache}
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root: it makes network namespaces and cgroups" >&2; exit 1; }
FAIRLEAD_CACHE=$cache ../../test/cluster/build.sh etcd kube-apiserver kube-proxy
# -mod=mod: this module follows the dependencies of the root module, for which it has a replace directive to the folder above.
CGO_ENABLED=0 go build -mod=mod -o "$cache/bin/peers" .
# All processes have priority over other work of the machine: subjects, control plane and probes, all at the same priority.
exec nice -n "${NICE:--10}" "$cache/bin/peers" -bin "$cache/bin" -fairlead "${FAIRLEAD_BIN:-$root/bin/fairlead}" \
  -sizes "${SIZES:-1000 10000}" -fairlead-flags "${FAIRLEAD_FLAGS:-}" -e "${E:-10}" -subjects "${SUBJECTS:-nftables fairlead}" \
  -churn "${CHURN:-60s}" -connect "${CONNECT:-3s}" -singles "${SINGLES:-5}" -sync-limit "${SYNC_LIMIT:-10m}" \
  -brief-above "${BRIEF_ABOVE:-20000}" -out "${OUT:-$root/bench/results/peers-$(date +%Y%m%d-%H%M%S).jsonl}"
