#!/usr/bin/env bash
# Runs every test in groups and says how many of each ran. A group that
# fails does not hide the others.
set -uo pipefail
[ "$(id -u)" = 0 ] || { echo "make test needs root: it makes network namespaces" >&2; exit 1; }
failed=0
go build -o bin/summary ./test/summary || exit 1
group() { # name, go test arguments...
	local name=$1; shift
	echo "== $name"
	go test -json "$@" | bin/summary "$name" | tee "bin/$name.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=1
}
kernel='internal/kernel/|internal/dataplane/|internal/conntrack|internal/node|internal/dns|test/netlab|test/scenarios|test/takeover|test/headless'
mapfile -t all < <(go list ./...)
mapfile -t unit < <(printf '%s\n' "${all[@]}" | grep -vE "$kernel")
mapfile -t real < <(printf '%s\n' "${all[@]}" | grep -E "$kernel")
bash scripts/lint.sh || failed=1
group unit -race -count=1 "${unit[@]}"
group kernel -count=1 -timeout 15m "${real[@]}"
for nested in scripts/image; do # modules of their own: what they need is no part of the product's go.mod
	pushd "$nested" >/dev/null || exit 1
	group_dir=$OLDPWD
	echo "== deploy: $nested"
	go test -json -count=1 -timeout 10m ./... | "$group_dir/bin/summary" "deploy" | tee "$group_dir/bin/deploy-${nested##*/}.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=1
	popd >/dev/null
done
echo "== building etcd, kube-apiserver and kube-proxy (once; about 6 minutes)"
bash test/cluster/build.sh etcd kube-apiserver kube-proxy && {
	pushd test/cluster >/dev/null || exit 1
	group_dir=$OLDPWD
	echo "== apiserver"
	go test -json -mod=mod -count=1 -timeout 20m ./... | "$group_dir/bin/summary" apiserver | tee "$group_dir/bin/apiserver.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=1
	popd >/dev/null
} || failed=1
echo
awk '{ if (match($0, /^(unit|kernel|deploy|apiserver): /)) { print; p+=$2; f+=$4; s+=$6 } } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }' bin/unit.txt bin/kernel.txt bin/deploy-*.txt bin/apiserver.txt
exit $failed
