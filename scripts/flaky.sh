#!/usr/bin/env bash
# flaky.sh PACKAGE [RUN]: runs a package's tests TIMES times (20) concurrently with BUSY busy processes (8), and
# prints how often each test failed. It exits with 1 if a test failed.
set -euo pipefail
package=${1:?flaky.sh: which package? make test-flaky PKG=./internal/relay} run=${2:-.}
root=$PWD out=$PWD/bin/flaky
mkdir -p "$out"
rm -f "$out"/*
go test -c -o "$out/tests" "$package"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
for _ in $(seq "${BUSY:-8}"); do
	sh -c 'while :; do :; done' & # ends with this script
	pids+=($!)
done
cd "$(go list -f '{{.Dir}}' "$package")"
failed=0
for i in $(seq "${TIMES:-20}"); do
	if timeout 1800 "$out/tests" -test.v -test.timeout 30m -test.run "$run" >"$out/$i.log" 2>&1; then result=passed; else result=FAILED failed=$((failed + 1)); fi
	echo "run $i: $result in $((SECONDS)) s since the start"
done
grep -hoE -- '^ *--- FAIL: [^ ]+' "$out"/*.log | sort | uniq -c || true
echo "$package: $failed of ${TIMES:-20} runs failed beside ${BUSY:-8} busy processes (${out#"$root/"}/N.log)"
[ "$failed" = 0 ]
