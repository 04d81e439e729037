#!/usr/bin/env bash
# conformance.sh KERNEL FLAGS... : the scenario kit (bin/fairlead-lab conformance FLAGS) under a stock kernel, divided over two emulated machines,
# since each has one processor. LIMIT (default 100m) ends a machine. Exit code 0 only if both halves pass.
set -uo pipefail
cd "$(dirname "$0")/../.."
kernel=$1; shift
bash test/vm/fetch.sh "$kernel" || exit 1
for program in init run; do
	CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "bin/vm-$program" "./test/vm/$program" || exit 1
done
pids=()
for part in 0 1; do
	bin/vm-run -kernel "$kernel" -limit "${LIMIT:-100m}" -- bin/fairlead-lab conformance --bin "$PWD/bin/fairlead" --labs 1 "$@" --part $part --parts 2 \
		>"bin/conformance-$kernel-$part.txt" 2>&1 &
	pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
failed=0
for part in 0 1; do
	wait "${pids[$part]}" || failed=1
	echo "== kernel $kernel, half $((part + 1)) of 2"
	cat "bin/conformance-$kernel-$part.txt"
done
echo
awk -v k="$kernel" '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; n += $5 } END { printf "kernel %s: %d passed, %d failed, %d not applicable\n", k, p, f, n }' \
	bin/conformance-"$kernel"-[01].txt
exit $failed
