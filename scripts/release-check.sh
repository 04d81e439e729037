#!/usr/bin/env bash
# release-check.sh: the conditions of a release that need the network or change with time, so that they are not part of make test:
# no known vulnerability is reachable from the code, and THIRD_PARTY_NOTICES is that of go.mod. With "write" it writes that file.
set -uo pipefail
cd "$(dirname "$0")/.."
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0
failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
notices=$tmp/notices
bash scripts/notices.sh >"$notices" || exit 1
if [ "${1:-}" = write ]; then
	cp "$notices" THIRD_PARTY_NOTICES && chmod 644 THIRD_PARTY_NOTICES
elif ! diff -q "$notices" THIRD_PARTY_NOTICES >/dev/null 2>&1; then
	echo "THIRD_PARTY_NOTICES is not that of go.mod: bash scripts/release-check.sh write"; failed=1
fi
echo "notices: $(grep -c '^====' "$notices") licence texts and notices"
GOBIN=$tmp go install "$govulncheck" && "$tmp/govulncheck" ./cmd/fairlead
case $? in
0) ;;
3) echo "govulncheck: known vulnerabilities are reachable"; failed=1 ;;
*) echo "govulncheck could not run: it needs the Go module proxy and the vulnerability database"; failed=1 ;;
esac
[ $failed = 0 ] && echo "release-check: clean"
exit $failed
