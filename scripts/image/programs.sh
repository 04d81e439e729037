#!/usr/bin/env bash
# programs.sh DIR ARCH...: downloads Debian's iptables and nftables, with their dependencies, for each architecture into DIR/ARCH. It
# uses this machine's package sources, with lists and a state of its own, so that nothing on the machine changes.
set -euo pipefail
dir=$(realpath -m "$1")
shift
for arch in "$@"; do
	rm -rf "${dir:?}/$arch"
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	mkdir -p "$dir/$arch" "$tmp/state/lists/partial" "$tmp/cache/archives/partial"
	touch "$tmp/status"
	own=(-o "Dir::State=$tmp/state" -o "Dir::State::status=$tmp/status" -o "Dir::Cache=$tmp/cache" -o "APT::Architecture=$arch" -o "APT::Architectures=$arch"
		-o "APT::Sandbox::User=root" -o Debug::NoLocking=true)
	for try in 1 2 3; do # mirrors fail now and then
		if apt-get "${own[@]}" update >"$tmp/log" 2>&1 &&
			apt-get "${own[@]}" --yes --no-install-recommends --download-only install iptables nftables >>"$tmp/log" 2>&1; then break; fi
		[ $try != 3 ] || { cat "$tmp/log" >&2; exit 1; }
	done
	mv "$tmp"/cache/archives/*.deb "$dir/$arch"
	rm -rf "$tmp"
done
