#!/usr/bin/env bash
# Runs bench/sync for each size, each in a network namespace of its own, prints a
# table and keeps the JSON lines. SIZES="1000 10000" or "5000x50" for E endpoints.
set -euo pipefail
sizes=${SIZES:-1000 10000 50000 5000x50}
mkdir -p bench/results bin
go build -o bin/bench-sync ./bench/sync
out=bench/results/sync-$(date +%Y%m%d-%H%M%S).jsonl
for s in $sizes; do
	n=${s%x*}; e=10; [ "$s" = "$n" ] || e=${s#*x}
	# not exec'd by this shell: bench/sync compares its namespace with its parent's
	bash -c 'unshare -n bin/bench-sync -n "$1" -e "$2"; exit $?' _ "$n" "$e" | tee -a "$out" >/dev/null
done
echo "CPU in ms (user+system of the whole agent, kernel work on its batches included); memory in MB"
bin/bench-sync -table < "$out"
echo "json: $out"
