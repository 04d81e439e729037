#!/usr/bin/env bash
# build.sh [etcd] [kube-apiserver] [kube-proxy] : builds the pinned upstream programs (tools/go.mod) into the cache folder.
# No argument: etcd and kube-apiserver, which the tests need. A binary that was built for the same go.mod is kept.
# FAIRLEAD_CACHE (default <repo>/.cache) is the cache folder; the binaries are in its folder bin/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${FAIRLEAD_CACHE:-$here/../../.cache}/bin
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
cd "$here/tools"
pin=$(sha256sum go.mod | cut -c1-16)

pinned() { awk -v m="$1" '$1 == m && $2 ~ /^v/ { print $2; exit }' go.mod; }
kube=$(pinned k8s.io/kubernetes)
minor=${kube#v1.}; minor=${minor%%.*}
v=k8s.io/component-base/version
ldflags="-s -w -X $v.gitVersion=$kube -X $v.gitMajor=1 -X $v.gitMinor=$minor -X $v.gitTreeState=clean -X $v.gitCommit=module"

# progress: prints errors in full, and compiled packages (one bare path a line) as a count.
progress() { awk -v what="$1" '/^[a-zA-Z0-9._\/-]+$/ { if (++n % 150 == 0) { printf "  %s: %d packages compiled\n", what, n; fflush() } next } { print; fflush() }'; }

build() { # NAME PACKAGE VERSION MINUTES
  if [ -x "$bin/$1" ] && [ "$(cat "$bin/$1.pin" 2>/dev/null)" = "$pin" ]; then echo "$1 $3: cached"; return; fi
  echo "$1 $3: building (once; about $4 min on two free cores)"
  local t=$SECONDS
  CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -v -trimpath -ldflags "$ldflags" -o "$bin/.$1.new" "$2" 2>&1 | progress "$1"
  mv "$bin/.$1.new" "$bin/$1"
  echo "$pin" > "$bin/$1.pin"
  echo "$1 $3: built in $((SECONDS - t)) s"
}

exec 9> "$bin/.lock" # of two concurrent callers the second waits, then finds the binaries built
flock -w 3600 9 || { echo "build.sh: another build has held $bin/.lock for an hour" >&2; exit 1; }
for name in "${@:-etcd kube-apiserver}"; do
  for n in $name; do
    case $n in
    etcd) build etcd go.etcd.io/etcd/server/v3 "$(pinned go.etcd.io/etcd/server/v3)" 1 ;;
    kube-apiserver) build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$kube" 4 ;;
    kube-proxy) build kube-proxy k8s.io/kubernetes/cmd/kube-proxy "$kube" 1 ;;
    *) echo "build.sh: unknown program $n" >&2; exit 2 ;;
    esac
  done
done
