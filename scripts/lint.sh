#!/usr/bin/env bash
# The gates that need no kernel. Everything it runs is pinned in go.mod.
set -euo pipefail
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "not gofmt-ed:"; echo "$unformatted"; exit 1; }
go vet ./...
go vet -tags faults ./internal/app
go tool staticcheck ./...
for nested in test/cluster bench/peers scripts/image test/deploy; do (cd "$nested" && go vet -mod=mod ./...); done
go test ./internal/archtest
echo "lint: clean"
