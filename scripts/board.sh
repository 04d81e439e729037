#!/usr/bin/env bash
# Draws docs/operate/pictures/board.svg: Debian's Prometheus scrapes a real agent. For a while its Services get requests and updates,
# and another program changes the rules. Then board.py draws the results of the queries of deploy/monitoring/board.json. Everything runs
# in a network namespace that the script creates.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "make pictures needs root: it makes a network namespace" >&2; exit 1; }
export FAIRLEAD_CACHE=${FAIRLEAD_CACHE:-$PWD/.cache}
if [ "${1:-}" != inside ]; then
	bash test/deploy/prometheus.sh
	exec unshare --net --fork bash "$0" inside
fi
seconds=${SECONDS_OF_LIFE:-150}
work=$(mktemp -d)
pids=()
trap 'for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; rm -rf "$work"' EXIT
ip link set lo up
ip link add eth0 type veth peer name peer0
ip addr add 192.0.2.10/24 dev eth0
ip link set eth0 up
ip link set peer0 up
ip route add default via 192.0.2.1
mkdir "$work/served" "$work/manifests"
echo hello >"$work/served/index.html"
python3 -m http.server --bind 192.0.2.10 --directory "$work/served" 8080 >/dev/null 2>&1 &
pids+=($!)

services() { # endpoints of web-0: so the number changes with time
	for i in 0 1 2 3 4 5 6 7; do
		printf 'apiVersion: v1\nkind: Service\nmetadata: {name: web-%d, namespace: shop}\nspec: {clusterIP: 10.96.0.1%d, clusterIPs: [10.96.0.1%d], ports: [{name: http, port: 80}]}\n---\n' "$i" "$i" "$i"
		printf 'apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-%d-1, namespace: shop, labels: {kubernetes.io/service-name: web-%d}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints:\n' "$i" "$i"
		[ "$i" = 7 ] && echo '  []' || echo '- {addresses: [192.0.2.10]}'
		[ "$i" != 0 ] || for e in $(seq 1 "$1"); do echo "- {addresses: [10.244.0.$e], conditions: {ready: false}}"; done
		echo ---
	done >"$work/services.yaml.tmp"
	mv "$work/services.yaml.tmp" "$work/manifests/services.yaml"
}

services 1
cp examples/nodes.yaml "$work/manifests"
bin/fairlead run --manifests "$work/manifests" --hostname-override=node-a --proxy-mode=nftables --service-metrics=10 --conntrack-max-per-core=0 --conntrack-min=0 >"$work/agent.log" 2>&1 &
pids+=($!)
timeout 60 bash -c 'until curl -sf http://127.0.0.1:10256/readyz >/dev/null; do sleep 0.2; done' || { cat "$work/agent.log" >&2; exit 1; }
printf 'global: {scrape_interval: 1s}\nscrape_configs:\n- {job_name: fairlead, static_configs: [{targets: ["127.0.0.1:10249"]}]}\n' >"$work/prometheus.yaml"
"$FAIRLEAD_CACHE/prometheus/usr/bin/prometheus" --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/tsdb" --web.listen-address=127.0.0.1:9090 >"$work/prometheus.log" 2>&1 &
pids+=($!)
begun=$(date +%s)
turn=0
while [ $(($(date +%s) - begun)) -lt "$seconds" ]; do
	turn=$((turn + 1))
	for i in 0 0 0 1 1 2 3 7; do curl -s --max-time 2 "http://10.96.0.1$i/" >/dev/null || true; done
	services $((turn % 5 + 1))
	[ $((turn % 60)) != 30 ] || nft delete element ip fairlead services '{ 10.96.0.11 . tcp . 80 }' || true
	[ $((turn % 80)) != 40 ] || printf 'apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: shop}\nspec: {clusterIP: 10.96.0.300, clusterIPs: [10.96.0.300], ports: [{port: 80}]}\n' >"$work/manifests/bad.yaml"
	[ $((turn % 80)) != 60 ] || rm -f "$work/manifests/bad.yaml"
	sleep 0.3
done
python3 scripts/board.py deploy/monitoring/board.json http://127.0.0.1:9090 $((seconds - 30)) docs/operate/pictures/board.svg
