#!/usr/bin/env bash
# conformance.sh KERNEL MODE FLAGS... : the scenario kit (bin/fairlead-lab conformance --mode MODE FLAGS) under a stock kernel, divided over
# emulated machines, since each has one processor. Exit code 0 only if all passed.
# The passed variants are kept in bin/conformance/KERNEL-MODE, a line for each: a run that was interrupted or that failed continues with what
# is missing at this commit. Environment: LIMIT (ends a machine, default 100m), MACHINES (default 2), LABS (in each machine, default 2: a
# scenario often waits), ALSO (commits whose passes count as well, with commas), MEMORY (of a machine, MiB).
set -uo pipefail
cd "$(dirname "$0")/../.."
kernel=$1 mode=$2; shift 2
bash test/vm/fetch.sh "$kernel" || exit 1
out=bin/conformance/$kernel-$mode
mkdir -p "$out"
for program in init run; do
	CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "bin/vm-$program" "./test/vm/$program" || exit 1
done
commit=$(git rev-parse --short HEAD) || exit 1
[ -z "$(git status --porcelain --untracked-files=no)" ] || commit=$commit-changed
flags=(--mode "$mode" --record "$out" --commit "$commit" ${ALSO:+--also "$ALSO"} "$@")
bin/fairlead-lab conformance "${flags[@]}" --list |
	awk -F/ 'NF { print ++seen[$1] "\t" $0 }' | sort -sn | cut -f2 >"$out/todo" || exit 1 # one of each scenario first
todo=$(grep -c . "$out/todo")
echo "kernel $kernel, $mode mode, $commit: $todo variants to run"
failed=0 pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
for ((machine = 0; machine < ${MACHINES:-2} && machine < todo; machine++)); do
	awk -v n="${MACHINES:-2}" -v m="$machine" 'NF && NR % n == m' "$out/todo" >"$out/todo-$machine"
	bin/vm-run -kernel "$kernel" -steady -memory "${MEMORY:-2048}" -limit "${LIMIT:-100m}" -- /bin/bash test/vm/kit.sh \
		--labs "${LABS:-2}" "${flags[@]}" --only "$out/todo-$machine" -v >"$out/machine-$machine.txt" 2>&1 &
	pids+=($!)
done
for ((machine = 0; machine < ${#pids[@]}; machine++)); do
	wait "${pids[$machine]}"
	code=$?
	[ $code = 0 ] || { failed=1; echo "== machine $((machine + 1)) ended with code $code"; tail -5 "$out/machine-$machine.txt"; }
done
bin/fairlead-lab conformance "${flags[@]}" --report >"$out/matrix.txt" || failed=1
cat "$out/matrix.txt"
echo "kernel $kernel, $mode mode: $(grep -E '^[0-9]+ passed' "$out/matrix.txt")"
exit $failed
