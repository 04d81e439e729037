#!/usr/bin/env bash
# abuse.sh : the effect of a storm of connection attempts, of silent endpoints and of clients that never read on another Service of userspace
# mode.
#   FOR=60s ROUNDS=1 RATE=50000 GENERATORS=4 NICE=10 HOLDERS=2000 FILES=4096 RATIO=2 MB=128
# The proxy and its endpoints are in one network namespace, the clients in another, both in a user namespace: nothing here needs root, and root
# becomes the user "nobody". RATE is how many attempts a second must arrive at the proxy's interface: as many complete connections as possible,
# and for the rest SYNs from random ports of 10.99.0.0/16, whose hosts never answer. Ends with status 1 and prints the reason when a bound is
# broken.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${1:-}" != inside ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  (cd "$root" && CGO_ENABLED=0 go build -o "$tmp/bench" ./bench/userspace && CGO_ENABLED=0 go build -trimpath -o "$tmp/fairlead" ./cmd/fairlead)
  mkdir "$tmp/manifests" "$tmp/log"
  . "$root/bench/userspace/service.sh"
  service well 10.96.0.31 p=19051=19001
  service stormed 10.96.0.32 p=19052=19001
  service silent 10.96.0.33 p=19053=19061
  service endless 10.96.0.34 p=19054=19062
  cp "$root/scripts/rootless.sh" "$root/bench/userspace/abuse.sh" "$tmp/"
  chmod -R a+rX "$tmp" && chmod 777 "$tmp/log"
  bash "$tmp/rootless.sh" bash "$tmp/abuse.sh" inside "$tmp"
  exit
fi
tmp=$2
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true' EXIT
ip netns add clients
ip link add proxy type veth peer name client netns clients
ip addr add 10.98.0.1/30 dev proxy && ip link set proxy up
ip -n clients addr add 10.98.0.2/30 dev client && ip -n clients link set client up && ip -n clients link set lo up
ip route add 10.99.0.0/16 via 10.98.0.2             # the half-open peers: packets to them end there
ip -n clients route add 10.96.0.0/24 via 10.98.0.1
"$tmp/bench" -serve -short 0.0.0.0:19001 & pids+=($!)
(ulimit -n "${FILES:-4096}"; exec "$tmp/fairlead" run --proxy-mode userspace --userspace-addresses service --manifests "$tmp/manifests" --hostname-override bench \
  --healthz-bind-address 127.0.0.1:19033 --metrics-bind-address 127.0.0.1:19034) > "$tmp/log/fairlead" 2>&1 & fairlead=$!; pids+=($fairlead)
for at in 127.0.0.1/19001 10.96.0.31/19051 10.96.0.32/19052 10.96.0.33/19053 10.96.0.34/19054; do
  for _ in $(seq 300); do (: < "/dev/tcp/$at") 2>/dev/null && continue 2; sleep 0.1; done
  echo "abuse.sh: nobody listens at $at" >&2; cat "$tmp/log/fairlead" >&2; exit 1
done
status=0
ip netns exec clients "$tmp/bench" -abuse "$fairlead,10.96.0.31:19051,10.96.0.32:19052,10.96.0.33:19053,10.96.0.34:19054" -short 10.98.0.1:19001 \
  -for "${FOR:-60s}" -rounds "${ROUNDS:-1}" -generators "${GENERATORS:-4}" -nice "${NICE:-10}" -holders "${HOLDERS:-2000}" \
  -rate "$((${RATE:-50000} * 104 / 100))" -syns-from 10.99.0.0/16 -device proxy \
  -least-attempts "${RATE:-50000}" -most-ratio "${RATIO:-2}" -most-mb "${MB:-128}" -most-files "${FILES:-4096}" || status=$?
curl -s 127.0.0.1:19034/metrics | grep -E '^fairlead_userspace_(accepted|refused|retries|stalled|turned_away)'
exit "$status"
