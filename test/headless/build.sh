#!/usr/bin/env bash
# build.sh : builds upstream CoreDNS (the version that coredns/go.mod pins, with the plugins of coredns/main.go) into the cache.
# FAIRLEAD_CACHE (default <repo>/.cache) is the cache folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${FAIRLEAD_CACHE:-$here/../../.cache}/bin
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
cd "$here/coredns"
pin=$(cat go.mod main.go | sha256sum | cut -c1-16)
if [ -x "$bin/coredns" ] && [ "$(cat "$bin/coredns.pin" 2>/dev/null)" = "$pin" ]; then
  echo "coredns: cached"
  exit 0
fi
echo "coredns: building (once; 2 to 4 min)"
CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice -n 5 go build -trimpath -ldflags '-s -w' -o "$bin/.coredns.new" .
mv "$bin/.coredns.new" "$bin/coredns"
echo "$pin" > "$bin/coredns.pin"
