#!/usr/bin/env bash
# notices.sh: prints the licence texts and notices of all modules that are linked into bin/fairlead, in the versions that go.mod
# pins. A module without a licence file is an error. scripts/release-check.sh compares THIRD_PARTY_NOTICES with the output.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$(go list -m)
echo "fairlead contains the following third-party software. Each part is under the licence given with it."
CGO_ENABLED=0 go list -deps -f '{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}' ./cmd/fairlead | sort -u | while read -r path version dir; do
	[ "$path" != "$own" ] || continue
	mapfile -t files < <(find "$dir" -maxdepth 1 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) | sort)
	[ ${#files[@]} -gt 0 ] || { echo "notices.sh: $path $version has no licence file" >&2; exit 1; }
	for file in "${files[@]}"; do
		printf '\n================================================================\n%s %s: %s\n\n' "$path" "$version" "$(basename "$file")"
		tr -d '\r' <"$file"
	done
done
printf '\n================================================================\nThe Go programming language %s: LICENSE\n\n' "$(go env GOVERSION)"
cat "$(go env GOROOT)/LICENSE"
