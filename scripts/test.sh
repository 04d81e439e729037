#!/usr/bin/env bash
# Runs every test in groups and says how many of each ran. A group that fails does
# not hide the others. Two groups run in emulated machines under stock kernels, what
# this machine's kernel cannot run (test/vm/tests.txt); SKIP_VM=1 goes without them.
set -uo pipefail
[ "$(id -u)" = 0 ] || { echo "make test needs root: it makes network namespaces" >&2; exit 1; }
failed=0
go build -o bin/summary ./test/summary || exit 1
rm -f bin/{unit,kernel,apiserver,deploy-*,vm-*}.{txt,owed,passed} # of an earlier run
# What is said in -timeout ends a test that hangs; on a machine with load 16 an ordinary run takes six times what it takes on a quiet one.
group() { # name, go test arguments...
	local name=$1; shift
	echo "== $name"
	go test -json "$@" | bin/summary -lists "bin/$name" "$name" | tee "bin/$name.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=1
}
kernel='internal/kernel/|internal/dataplane/|internal/conntrack|internal/node|internal/dns|test/netlab|test/scenarios|test/takeover|test/headless'
mapfile -t all < <(go list ./...)
mapfile -t unit < <(printf '%s\n' "${all[@]}" | grep -vE "$kernel")
mapfile -t real < <(printf '%s\n' "${all[@]}" | grep -E "$kernel")
# beside LOG COMMAND...: starts a command that wants processors and no answers while tests mostly wait; its process is $!.
beside() { nice -n 15 "${@:2}" >"$1" 2>&1 & }
upstream=(etcd kube-apiserver kube-proxy)
beside bin/browser.log bash test/browser/install.sh
installing=$!
bash scripts/lint.sh || failed=1
wait "$installing" || cat bin/browser.log # then TestPageInABrowser is skipped, and says so
beside bin/upstream.log bash test/cluster/build.sh "${upstream[@]}"
building=$!
trap 'kill "$building" ${machines:+"$machines"} 2>/dev/null' EXIT
group unit -race -count=1 -timeout 45m "${unit[@]}"
group kernel -count=1 -timeout 45m "${real[@]}"
bash test/deploy/prometheus.sh || failed=1
for nested in scripts/image test/deploy; do # modules of their own: what they need is no part of the product's go.mod
	pushd "$nested" >/dev/null || exit 1
	group_dir=$OLDPWD
	echo "== deploy: $nested"
	go test -json -mod=mod -count=1 -timeout 20m ./... | "$group_dir/bin/summary" "deploy" | tee "$group_dir/bin/deploy-${nested##*/}.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=1
	popd >/dev/null
done
kernels=(6.1 6.12)
if [ -z "${SKIP_VM:-}" ]; then
	beside bin/vm.log bash test/vm/tests.sh "${kernels[@]}"
	machines=$!
fi
echo "== building ${upstream[*]}: started before the tests"
wait "$building"
built=$?
cat bin/upstream.log
if [ "$built" = 0 ]; then
	pushd test/cluster >/dev/null || exit 1
	group_dir=$OLDPWD
	echo "== apiserver"
	go test -json -mod=mod -count=1 -timeout 45m ./... | "$group_dir/bin/summary" -lists "$group_dir/bin/apiserver" apiserver | tee "$group_dir/bin/apiserver.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=1
	popd >/dev/null
else
	failed=1
fi
if [ -n "${machines:-}" ]; then
	echo "== stock kernels, in emulated machines"
	wait "$machines" || failed=1
	cat bin/vm.log
fi
echo
# What this machine's kernel is too poor for must have passed under each of the others.
cat bin/unit.owed bin/kernel.owed bin/apiserver.owed 2>/dev/null | sort -u >bin/owed
if [ -n "${SKIP_VM:-}" ]; then
	echo "SKIPPED, not run: the tests under stock kernels (SKIP_VM=$SKIP_VM); $(wc -l <bin/owed) tests that this machine's kernel is too poor for ran nowhere"
else
	for kernel in "${kernels[@]}"; do
		touch "bin/vm-$kernel.passed"
		while read -r name; do
			echo "FAIL  $name: skipped here, and did not pass under kernel $kernel (test/vm/tests.txt lists what runs there)"
			failed=1
		done < <(grep -Fxv -f "bin/vm-$kernel.passed" bin/owed)
	done
fi
echo
cat bin/unit.txt bin/kernel.txt bin/deploy-*.txt bin/apiserver.txt bin/vm-*.txt 2>/dev/null | # what did not run has none
	awk '{ if (match($0, /^(unit|kernel|deploy|apiserver|vm-[0-9.]+): /)) { print; p+=$2; f+=$4; s+=$6 } } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }'
exit $failed
