#!/usr/bin/env bash
# run.sh : the table of modes (make bench-modes). Boots a stock kernel (test/vm) whose clock counts instructions, once for each subject, and
# measures in it Fairlead's mode and kube-proxy's rules of the same mode, at each number of Services. The results have a line for each. Existing
# results are not measured again, so the run can be stopped and continued. Pictures and tables are written to docs/experiments/modes. Needs root.
#   KERNEL=6.1 SIZES="100 ... 10000" MODES="ipvs nftables iptables-legacy iptables-nft userspace" KEEP=1 (no new pictures) SUBJECTS=fairlead:nftables (one of them)
#   AB=2000x200 (short connections x clients; the guide has 10000x1000, which takes five times as long) CONNECTS=400 LIMIT=2h (ends one machine) SYNC=30m (of the guest's time, for a first sync) THEN="commands" (one a line: measures again after each)
#   CHANGES=10: in ipvs mode, single changes and a restart instead of connections, with FLAGS for each subject
#   KERNEL=host: on this machine's own kernel, by its clock: for modes that it has; other work of the machine disturbs the figures
#   OUT=bench/results/modes.jsonl
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export FAIRLEAD_CACHE=${FAIRLEAD_CACHE:-$root/.cache}
kernel=${KERNEL:-6.1} ab=${AB:-2000x200} changes=${CHANGES:-0}
out=${OUT:-bench/results/modes.jsonl}
mkdir -p bin "$(dirname "$out")"
command -v ab >/dev/null || apt-get install -y --no-install-recommends apache2-utils
[ "$kernel" = host ] || bash test/vm/fetch.sh "$kernel"
bash test/cluster/build.sh kube-proxy
for program in test/vm/init:vm-init test/vm/run:vm-run bench/modes:bench-modes; do
	CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "bin/${program#*:}" "./${program%:*}"
done
for mode in ${MODES:-ipvs nftables iptables-legacy iptables-nft userspace}; do
	subjects=${SUBJECTS:-"fairlead:$mode kube-proxy:$mode"}
	[ "$mode" != userspace ] || subjects=fairlead:userspace # upstream has removed its userspace mode
	for subject in $subjects; do # one machine each, so that no subject starts with kernel state of the previous one
		args=(-subjects "$subject" -sizes "${SIZES:-100 500 1000 2000 3000 4000 10000}" -requests "${ab%x*}" -clients "${ab#*x}" -connects "${CONNECTS:-400}"
			-changes "$changes" -limit "${SYNC:-30m}" -flags "${FLAGS:-}" -then "${THEN:-}" -fairlead "${FAIRLEAD_BIN:-$root/bin/fairlead}" -kube-proxy "$FAIRLEAD_CACHE/bin/kube-proxy" -out "$out")
		if [ "$kernel" = host ]; then # no effect on the machine outside: names of namespaces, links and cgroups are private to it
			timeout "${LIMIT:-2h}" unshare -m -n bash -c 'mount -t tmpfs t /run/netns && ip link set lo up &&
				{ [ -e /sys/fs/cgroup/cgroup.controllers ] || { umount /sys/fs/cgroup; mount -t cgroup2 c /sys/fs/cgroup; }; } && exec bin/bench-modes "$@"' _ "${args[@]}"
		else
			bin/vm-run -kernel "$kernel" -steady -memory 3072 -limit "${LIMIT:-2h}" -- /bin/bash bench/modes/guest.sh "${args[@]}"
		fi || echo "run.sh: $subject did not come to its end" >&2
	done
done
[ "$changes" = 0 ] || { bin/bench-modes report <"$out"; exit; }
[ -z "${KEEP:-}" ] || exit 0
/usr/bin/python3 -c 'import matplotlib' 2>/dev/null || apt-get install -y --no-install-recommends python3-matplotlib
mkdir -p docs/experiments/modes
cp "$out" docs/experiments/modes/results.jsonl
/usr/bin/python3 bench/modes/plot.py docs/experiments/modes/results.jsonl docs/experiments/modes
echo "results: docs/experiments/modes/results.md"
