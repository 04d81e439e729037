#!/usr/bin/env bash
# test.sh short|all: runs the tests in parts that overlap, because most tests wait, and prints a line of progress every
# 10 seconds and a summary. `make test` is short: `go test -short`, one stock kernel, no browser, no kube-proxy. `make
# test-all` is all. A part that fails does not hide the others. bin/test/PART.log has the complete output of a part.
# Environment: SKIP_VM=1 leaves the stock kernels out.
set -uo pipefail
scope=${1:-short}
case $scope in short | all) ;; *) echo "test.sh: unknown scope '$scope': want short or all" >&2; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "make test needs root: it makes network namespaces" >&2; exit 1; }
root=$PWD out=$PWD/bin/test
rm -rf "$out" && mkdir -p "$out"
# Every build except that of the race detector uses the agent's own settings, so that each package is compiled once.
export CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" GOROOT="$(go env GOROOT)" # a trimmed test does not know its GOROOT
export GOGC=300 # compilers use 15 % less processor time, and more memory; tests run without it
go build -o bin/summary ./test/summary || exit 1
if [ "$scope" = short ]; then
	flags=(-short) kernels=(6.1) upstream=(etcd kube-apiserver)
	# Lines of test/vm/tests.txt: IPVS and flowtables, which the kernels of many machines do not have.
	lines='kernel/nft|kernel/ipvs|dataplane/ipvs|dataplane/offload.*(kernel|nftables)|PortUsedAgain|TestTrace'
else
	flags=() kernels=(6.1 6.12) upstream=(etcd kube-apiserver kube-proxy) lines=.
fi

tests() { # PART, go test arguments...; part lint vets
	go test -json -count=1 -vet=off -ldflags=-w -exec "env -u GOGC" -timeout 45m "${flags[@]}" "${@:2}" | "$root/bin/summary" -lists "$out/$1" "$1"
}
plain() {
	tests plain -p 4 "${plain[@]}"
}
takeover() { # with kube-proxy
	bash test/cluster/build.sh kube-proxy && tests takeover ./test/takeover
}
race() {
	CGO_ENABLED=1 tests race -race -p 2 "${race[@]}"
}
apiserver() {
	bash test/cluster/build.sh "${upstream[@]}" || return
	cd test/cluster && tests apiserver -mod=mod ./...
}
machines() {
	RUN=$lines bash test/vm/tests.sh "${kernels[@]}"
}
deploy() { # modules of their own: their dependencies are not part of the product's go.mod
	bash test/deploy/prometheus.sh && (cd scripts/image && tests image -mod=mod ./...) && cd test/deploy && tests deploy -mod=mod ./...
}
lint() {
	bash scripts/lint.sh "$scope"
}
browser() { # without it TestPageInABrowser is skipped
	bash test/browser/install.sh || true
}

parts=() pids=()
part() { # NAME NICE: runs the function of that name in the background, in a process group of its own
	parts+=("$1")
	(
		start=$SECONDS
		renice -n "$2" $BASHPID >/dev/null
		"$1" </dev/null >"$out/$1.log" 2>&1
		echo "$? $((SECONDS - start))" >"$out/$1.end"
	) &
	pids+=($!)
}
stop() { for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null; done; }
set -m
trap stop EXIT
trap 'exit 130' INT TERM

# This compiles the common packages once, before several parts need them at the same time.
make --no-print-directory deps build || exit 1

# Packages in which the product starts goroutines or shares memory between them run under the race detector. Those with
# Kubernetes' libraries, which would be compiled again for it, do so in `make test-all` only.
concurrent() {
	local dir deps files
	go list -f '{{.Dir}}|{{join .Deps " "}}|{{join .GoFiles " "}}' "$@" | while IFS='|' read -r dir deps files; do
		if [ "$scope" = all ] || { [[ $deps != *k8s.io/* ]] && (cd "$dir" && grep -qE '^\s*go |\.Go\(|"sync(/atomic)?"' $files); }; then
			go list "$dir"
		fi
	done
}
kernel='internal/kernel/|internal/dataplane/|internal/conntrack|internal/node|internal/dns|test/'
mapfile -t unit < <(go list ./internal/... ./cmd/... | grep -vE "$kernel")
mapfile -t race < <(concurrent "${unit[@]}")
# The packages that take longest begin first.
slow='test/takeover$|internal/app$|test/scenarios$|internal/dataplane/iptables$|internal/dns/intercept$|internal/dataplane/nftables$|test/property$|test/rootless$'
own='^$' # a part of its own
[ "$scope" = short ] || own='test/takeover$'
rest() { go list ./... | grep -vE "$own" | grep -vxF -f <(printf '%s\n' "${race[@]}"); }
mapfile -t plain < <(rest | grep -E "$slow"; rest | grep -vE "$slow")

[ "$scope" = short ] || { echo "installing a browser"; browser >"$out/browser.log" 2>&1; }
[ -n "${SKIP_VM:-}" ] || part machines 0
part apiserver 0 # its build takes longest; other parts run while its tests wait
part plain 5
part race 5
part lint 10
[ "$scope" = short ] || part takeover 0
[ "$scope" = short ] || part deploy 5

finished() { # PART: how many packages, or lines of test/vm/tests.txt, have ended
	case $1 in machines) cat bin/vm/*.log 2>/dev/null ;; *) cat "$out/$1.log" ;; esac | grep -cE '^ok |: [0-9]+ s$'
}
unfinished() { # sets running; a part that was killed counts as ended
	running=()
	local i p
	for i in "${!parts[@]}"; do
		p=${parts[i]}
		[ -e "$out/$p.end" ] || kill -0 "${pids[i]}" 2>/dev/null || [ -e "$out/$p.end" ] || echo "137 $SECONDS" >"$out/$p.end"
		[ -e "$out/$p.end" ] || running+=("$p ($(finished "$p"))")
	done
	[ ${#running[@]} -gt 0 ]
}
while unfinished; do
	sleep 10
	printf '%5d s  running, with packages done: %s; tests failed: %d\n' $SECONDS "${running[*]}" "$(cat "$out"/*.log | grep -c '^FAIL  ')"
done

failed=0
for p in "${parts[@]}"; do
	read -r code took <"$out/$p.end"
	[ "$code" = 0 ] || { failed=1; echo; echo "== $p FAILED (exit code $code)"; cat "$out/$p.log"; }
done
if [ "$scope" = all ] && [ -z "${SKIP_VM:-}" ]; then # each of the other kernels runs the tests that this one cannot
	cat "$out"/*.owed | sort -u >"$out/owed"
	for kernel in "${kernels[@]}"; do
		while read -r name; do
			echo "FAIL  $name: skipped here, and did not pass under kernel $kernel (test/vm/tests.txt lists what runs there)"
			failed=1
		done < <(touch "$out/vm-$kernel.passed" && grep -Fxv -f "$out/vm-$kernel.passed" "$out/owed")
	done
fi
echo
echo "part        seconds  result"
for p in "${parts[@]}"; do
	read -r code took <"$out/$p.end"
	printf '%-10s %8d  %s\n' "$p" "$took" "$(grep -hE '^[a-z0-9.-]+: [0-9]+ passed|^lint: ' "$out/$p.log" | paste -sd';' | sed 's/;/; /g')"
done
echo
echo "what was proved:"
cat "$out"/*.proof | awk '{ n = $1; $1 = ""; sum[$0] += n } END { for (kind in sum) printf "%8d %s\n", sum[kind], kind }' | sort -k2
[ -n "${SKIP_VM:-}" ] || printf '%8d %s\n' ${#kernels[@]} "stock kernels: ${kernels[*]}"
echo
[ "$scope" = all ] || echo "left to make test-all: all variants of each scenario, the other seeds of random histories, stock kernel 6.12 and the rest of test/vm/tests.txt,
kube-proxy beside the agent, tests that wait for a minute, the container image, deploy/, the page in a browser"
[ -z "${SKIP_VM:-}" ] || echo "SKIPPED, not run: the tests under stock kernels (SKIP_VM=$SKIP_VM)"
cat "$out"/*.log | awk '/^(plain|race|takeover|apiserver|image|deploy|vm-[0-9.]+): [0-9]+ passed/ { p += $2; f += $4; s += $6 } END { printf "%d passed, %d failed, %d skipped", p, f, s }'
printf ' in %d min %02d s\n' $((SECONDS / 60)) $((SECONDS % 60))
exit $failed
