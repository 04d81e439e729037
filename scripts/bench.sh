#!/usr/bin/env bash
# bench.sh MODE: runs bench/sync for each size, each in a network namespace of its own, prints a table and keeps the JSON lines.
# SIZES="1000 10000", or "5000x50" for E endpoints. In an iptables mode it continues with the form of KEP-3453 next to Fairlead's,
# and with upstream kube-proxy on the same backend and API server (PEER_SIZES, default 10000; "" for neither). MODE=ipvs: single
# changes and a restart next to kube-proxy's ipvs mode, in an emulated machine (CHANGES, FLAGS: bench/modes/run.sh).
set -euo pipefail
mode=${1:-nftables}
case $mode in
nftables) sizes=${SIZES:-1000 10000 50000 5000x50} ;;
iptables-legacy | iptables-nft) sizes=${SIZES:-1000 10000} ;;
ipvs) # this kernel may lack IPVS: under a stock kernel that counts instructions, next to kube-proxy in the same machine
	if [ -n "${COMMANDS-10000}" ]; then
		echo "== the answers of status, explain and audit, in a machine that counts instructions for a clock"
		bash test/vm/fetch.sh 6.1
		for program in test/vm/init:vm-init test/vm/run:vm-run bench/sync:bench-sync; do CGO_ENABLED=0 go build -trimpath -o "bin/${program#*:}" "./${program%:*}"; done
		bin/vm-run -kernel 6.1 -steady -memory 2048 -limit 2h -- /bin/bash bench/sync/guest.sh "$mode" "${COMMANDS-10000}" 6 4
	fi
	file=bench/results/ipvs-$(date +%Y%m%d-%H%M%S).jsonl
	MODES=ipvs CHANGES=${CHANGES:-10} SIZES=${SIZES:-1000 10000} FLAGS=${FLAGS:---ipvs-sync-period=24h} OUT=$file exec bash bench/modes/run.sh ;;
*) echo "bench.sh: MODE '$mode': want nftables, iptables-legacy, iptables-nft or ipvs" >&2; exit 2 ;;
esac
mkdir -p bench/results bin
go build -o bin/bench-sync ./bench/sync
out=bench/results/sync-$mode-$(date +%Y%m%d-%H%M%S).jsonl
for s in $sizes; do
	n=${s%x*}; e=10; [ "$s" = "$n" ] || e=${s#*x}
	# not exec'd by this shell: bench/sync compares its namespace with its parent's
	bash -c 'unshare -n bin/bench-sync -mode "$1" -n "$2" -e "$3"; exit $?' _ "$mode" "$n" "$e" | tee -a "$out" >/dev/null
done
inside=bench/results/inside-$mode-$(date +%Y%m%d-%H%M%S).jsonl
if [ "$mode" = nftables ]; then # in an iptables mode a Service of 50 000 endpoints is a chain of 50 000 rules
	bash -c 'unshare -n bin/bench-sync -mode "$1" -inside; exit $?' _ "$mode" >"$inside"
	echo "one changed endpoint inside a large Service, ms: CPU; wall time of policy, render and diff; of encoding and kernel"
	bin/bench-sync -inside -table <"$inside"
fi
commands_size=${COMMANDS-10000} # Services of ten endpoints each; "" for none
if [ -n "$commands_size" ]; then
	echo "== the answers of status, explain and audit" # exec: bench/sync compares its namespace with its parent's
	bash -c 'unshare -n bash -c "ip link set lo up && exec bin/bench-sync -commands $2 -mode $1 -n $3"; exit $?' _ "$mode" "${FAIRLEAD_BIN:-bin/fairlead}" "$commands_size"
fi
echo "CPU in ms (user+system of the whole agent, its programs and kernel work on its batches included); memory in MB"
bin/bench-sync -table < "$out"
echo "json: $out"
[ "$mode" != nftables ] || exit 0
peer_sizes=${PEER_SIZES-10000}
[ -n "$peer_sizes" ] || exit 0
backend=${mode#iptables-}
for n in $peer_sizes; do
	echo "== $n Services: our rules (Scale) and KEP-3453's (a model of them), the driver alone"
	FAIRLEAD_BENCH_SERVICES=$n go test -run '^$' -bench "^Benchmark(Scale|KEP3453)\$/^$backend\$" -benchtime 1x -timeout 20m ./internal/dataplane/iptables |
		grep '^Benchmark' | sed -E 's/ {2,}|\t+/ /g'
done
echo "== first packet, 100 and 10000 Services in turn"
go test -run '^$' -bench "^BenchmarkFirstPacket\$/^$backend\$" -benchtime 1x -timeout 20m ./internal/dataplane/iptables | grep '^Benchmark' | sed -E 's/ {2,}|\t+/ /g'
SIZES=$peer_sizes SUBJECTS="$mode fairlead" FAIRLEAD_FLAGS="--proxy-mode=iptables --iptables-backend=$backend" SYNC_LIMIT=${SYNC_LIMIT:-4m} \
	exec bash bench/peers/run.sh
