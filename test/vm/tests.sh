#!/usr/bin/env bash
# tests.sh [KERNEL...]: runs the tests of test/vm/tests.txt under stock kernels (no argument: 6.1 and 6.12), each in an emulated machine of its
# own, concurrently. Environment: RUN (only lines that match this regular expression), PART (what to add to their own, as in PART=/nftables),
# COUNT (how often each test, default 1), LIMIT (ends a machine, default 60m). The output of the tests is in bin/vm/KERNEL/*.out, for
# bin/summary to read.
set -uo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}
out=bin/vm
rm -rf "$out" && mkdir -p "$out" bin/test
bash test/vm/fetch.sh "$@" || { echo "tests.sh: no stock kernels to boot; SKIP_VM=1 goes without them" >&2; exit 1; }
[ $# -gt 0 ] || set -- 6.1 6.12
export CGO_ENABLED=0
for program in init run; do
	"$go" build -trimpath -o "bin/vm-$program" "./test/vm/$program" || exit 1
done
"$go" build -o bin/summary ./test/summary || exit 1
grep -vE '^(#|$)' test/vm/tests.txt | grep -E "${RUN:-.}" >"$out/list" || { echo "tests.sh: nothing in test/vm/tests.txt matches RUN=$RUN" >&2; exit 1; }
while read -r package _; do
	binary=$out/$(basename "$package")-$(cksum <<<"$package" | cut -d' ' -f1).test
	[ -e "$binary" ] || "$go" test -c -trimpath -o "$binary" "$package" || exit 1
	echo "$binary $("$go" list "$package")"
done <"$out/list" >"$out/built" || exit 1
paste -d' ' "$out/built" "$out/list" | sed "s#\$#${PART:-}#" >"$out/plan"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
for kernel; do
	mkdir -p "$out/$kernel"
	bin/vm-run -kernel "$kernel" -steady -limit "${LIMIT:-60m}" -- /bin/bash test/vm/guest.sh "$out/plan" "$out/$kernel" "${COUNT:-1}" >"$out/$kernel.log" 2>&1 &
	pids+=($!)
done
failed=0
for kernel; do
	wait "${pids[0]}"
	code=$?
	pids=("${pids[@]:1}")
	echo "== vm-$kernel"
	cat "$out/$kernel.log"
	! grep -l "no tests to run" "$out/$kernel"/*.out || { echo "vm-$kernel: a line of test/vm/tests.txt names no test"; failed=1; }
	i=0
	while read -r _ package _; do
		i=$((i + 1))
		"$go" tool test2json -p "$package" <"$out/$kernel/$i.out"
	done <"$out/plan" 2>/dev/null | bin/summary -lists "bin/test/vm-$kernel" "vm-$kernel"
	[ "${PIPESTATUS[1]}" = 0 ] && [ "$code" = 0 ] || failed=1
	[ "$code" -lt 125 ] || echo "vm-$kernel: the machine did not come to its end (exit code $code)"
done
exit $failed
