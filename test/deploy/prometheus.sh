#!/usr/bin/env bash
# prometheus.sh: puts Prometheus and promtool of this Debian or Ubuntu into the cache folder, without installing the package: an
# installation would start a daemon on the machine. FAIRLEAD_CACHE (default <repo>/.cache) is the cache folder; the programs are in its
# folder prometheus/usr/bin.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${FAIRLEAD_CACHE:-$here/../../.cache}/prometheus
[ ! -x "$dir/usr/bin/promtool" ] || exit 0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
for try in 1 2 3; do # the package lists of a bare machine are missing or stale, and mirrors fail now and then
	if apt-get download prometheus >log 2>&1; then break; fi
	[ $try != 3 ] || { cat log >&2; exit 1; }
	apt-get update >>log 2>&1 || true
done
dpkg-deb -x prometheus_*.deb "$tmp/root"
mkdir -p "$(dirname "$dir")"
rm -rf "$dir"
mv "$tmp/root" "$dir"
