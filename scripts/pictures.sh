#!/usr/bin/env bash
# Takes the pictures of docs/operate/pictures: the page /status of a real agent, with few and with 10 000 Services, light and dark, wide
# and narrow. The browser and the agent run in a network namespace that the script creates. It is not part of make test: it needs
# Debian's chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "make pictures needs root: it makes a network namespace" >&2; exit 1; }
bash test/browser/install.sh >/dev/null
[ "${1:-}" = inside ] || exec unshare --net --fork bash "$0" inside
out=$PWD/docs/operate/pictures
work=$(mktemp -d)
agent=
trap '[ -z "$agent" ] || kill "$agent"; rm -rf "$work"' EXIT
ip link set lo up
ip link add eth0 type veth peer name peer0
ip addr add 192.0.2.10/24 dev eth0
ip link set eth0 up
ip link set peer0 up

services() { # number of Services: every hundredth has no ready endpoint; in all, one claims the address of another and one has a hint too few
	awk -v n="$1" 'BEGIN { for (i = 1; i <= n; i++) {
		ip = sprintf("10.96.%d.%d", int(i / 250), i % 250 + 1); name = sprintf("web-%05d", i)
		printf "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}\n", name, i % 60
		printf "spec: {clusterIP: %s, clusterIPs: [%s], %sports: [{name: http, port: 80, targetPort: 8080}]}\n---\n", ip, ip, (i < 3 ? "externalIPs: [203.0.113.7], " : "")
		printf "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, namespace: shop, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints:\n", name, name
		for (e = 1; e <= 3; e++) printf "- {addresses: [10.244.%d.%d], conditions: {ready: %s}%s}\n", i % 250, e, (i % 100 == 3 ? "false" : "true"), (i == 2 && e < 3 ? ", hints: {forZones: [{name: a}]}" : "")
		print "---" } }' >"$2/services.yaml"
}

shot() { # name, width, height, dark or light, address
	local scheme=1
	[ "$4" = light ] || scheme=0
	timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/browser" --blink-settings=preferredColorScheme=$scheme \
		--window-size="$2,$3" --screenshot="$out/$1.png" "$5" >"$work/browser.log" 2>&1 || { cat "$work/browser.log" >&2; exit 1; }
}

for n in 3 10000; do
	mkdir "$work/$n"
	services $n "$work/$n"
	cat examples/nodes.yaml >"$work/$n/nodes.yaml"
	bin/fairlead run --manifests "$work/$n" --hostname-override=node-a --proxy-mode=nftables --cluster-cidr=10.244.0.0/16 \
		--conntrack-max-per-core=0 --conntrack-min=0 >"$work/agent.log" 2>&1 &
	agent=$!
	timeout 120 bash -c 'until curl -sf http://127.0.0.1:10256/readyz >/dev/null; do sleep 0.2; done' || { cat "$work/agent.log" >&2; exit 1; }
	for scheme in light dark; do
		shot "status-$n-$scheme-wide" 1280 900 $scheme http://127.0.0.1:10249/status
		shot "status-$n-$scheme-narrow" 500 1100 $scheme http://127.0.0.1:10249/status
	done
	shot "explain-$n" 1280 1100 light "http://127.0.0.1:10249/status?q=shop/web-00002"
	kill $agent
	wait $agent || true
	agent=
done
echo "written: docs/operate/pictures"
