#!/usr/bin/env bash
# fetch.sh [6.1] [6.12] : downloads what test/vm needs to boot Debian's stock kernels: QEMU, and the kernels by package name. They are
# unpacked into the cache folder (FAIRLEAD_CACHE, default <repo>/.cache), not installed. No argument: both. Existing files are kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FAIRLEAD_CACHE:-$here/../../.cache}/kernels
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9> "$cache/.lock" # of two concurrent callers the second waits, then finds the files unpacked
flock -w 1800 9 || { echo "fetch.sh: somebody else has held $cache/.lock for half an hour" >&2; exit 1; }

declare -A package=([qemu-system-x86_64]=qemu-system-x86 [depmod]=kmod [xz]=xz-utils [ipset]=ipset [ipvsadm]=ipvsadm)
missing=()
for program in "${!package[@]}"; do
	command -v "$program" >/dev/null || [ -x "/sbin/$program" ] || missing+=("${package[$program]}")
done
updated=
update() { [ -n "$updated" ] || { updated=1; apt-get -o Acquire::Retries=3 update; } >"$cache/apt.log" 2>&1; }
if [ ${#missing[@]} -gt 0 ]; then
	echo "installing: ${missing[*]}"
	update
	DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}" >>"$cache/apt.log" 2>&1 ||
		{ tail -20 "$cache/apt.log" >&2; exit 1; }
fi

newest() { apt-cache search --names-only "$1" | awk '{print $1}' | sort -V | tail -1; }
fetch() { # NAME PACKAGE-PATTERN
	local dir=$cache/$1 name log=$cache/apt.log
	[ -e "$dir/vmlinuz" ] && return
	name=$(newest "$2")
	[ -n "$name" ] || { update; name=$(newest "$2"); }
	[ -n "$name" ] || { echo "fetch.sh: no package is called $2" >&2; exit 1; }
	echo "kernel $1: $name"
	rm -rf "$dir.new" && mkdir -p "$dir.new"
	(cd "$dir.new" && apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$name" >>"$log" 2>&1 && dpkg-deb -x ./*.deb . && rm -- *.deb) ||
		{ tail -20 "$log" >&2; exit 1; }
	version=$(ls "$dir.new/lib/modules")
	find "$dir.new/lib/modules/$version/kernel/net" -name '*.ko.xz' -exec xz -d {} + # an emulator takes a second for each
	depmod -b "$dir.new" "$version"
	mkdir "$dir.new/boot-modules"
	# The modules that PID 1 must load before it can reach the others, in their order.
	for m in virtio_pci 9pnet_virtio 9p; do
		modprobe -d "$dir.new" -S "$version" --show-depends "$m" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
	done | awk '!seen[$0]++' | while read -r file; do
		base=${file##*/}
		case $base in
		*.xz) base=${base%.xz}; xz -dc "$file" > "$dir.new/boot-modules/$base" ;;
		*) cp "$file" "$dir.new/boot-modules/" ;;
		esac
		echo "$base" >> "$dir.new/boot-modules/order"
	done
	ln "$dir.new/boot/vmlinuz-$version" "$dir.new/vmlinuz"
	rm -rf "$dir" && mv "$dir.new" "$dir"
}
[ $# -gt 0 ] || set -- 6.1 6.12
for kernel in "$@"; do
	case $kernel in
	6.1) fetch 6.1 '^linux-image-6\.1\.0-[0-9]+-amd64$' ;;
	6.12) fetch 6.12 '^linux-image-6\.12\.[0-9]+\+deb12-amd64$' ;;
	*) echo "fetch.sh: unknown kernel $kernel: want 6.1 or 6.12" >&2; exit 2 ;;
	esac
done
