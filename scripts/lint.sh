#!/usr/bin/env bash
# lint.sh [short|all]: the checks that need no kernel. Every tool that it runs is pinned in go.mod. short is gofmt and
# vet: on a machine with cold caches the rest takes minutes, because it compiles packages that no test of `make test`
# needs.
set -euo pipefail
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "not gofmt-ed:"; echo "$unformatted"; exit 1; }
go vet ./...
go vet -tags faults ./internal/app
(cd test/cluster && go vet -mod=mod ./...)
if [ "${1:-all}" = all ]; then
	go tool staticcheck ./...
	for nested in bench/peers scripts/image test/deploy; do (cd "$nested" && go vet -mod=mod ./...); done
	go test ./internal/archtest
fi
echo "lint: clean"
