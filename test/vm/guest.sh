#!/usr/bin/env bash
# guest.sh PLAN OUT COUNT: runs inside the test kernel each line of the plan (test binary, package, its folder, regular expression), in the
# package's folder as go test does. The output goes to files in OUT, because the console is slow.
. test/vm/memory.sh
[ -z "${FAIRLEAD_BIN:-}" ] || in_memory "$FAIRLEAD_BIN" || exit 125
[ -z "${FAIRLEAD_VM_FULL:-}" ] || in_memory "$FAIRLEAD_CACHE/bin/kube-proxy" || exit 125
minutes=60 # for one run of one line: ends a run that hangs, also on a busy host
failed=0
i=0
test=/run/lib/under.test # tests start their own binary as the agent
while read -r binary package folder run; do
	rm -f "$test" && cp "$binary" "$test" || exit 125
	i=$((i + 1))
	start=$SECONDS
	(cd "$folder" && exec "$test" -test.v=test2json -test.paniconexit0 -test.timeout $((minutes * $3))m -test.count "$3" -test.run "$run") >"$2/$i.out" 2>&1 || {
		failed=1
		echo "FAIL $package $run"
	}
	echo "$package $run: $((SECONDS - start)) s"
done <"$1"
exit $failed
