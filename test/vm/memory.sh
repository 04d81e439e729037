# memory.sh, for scripts inside a test kernel to source. Each start of a program reads its file from the host again, which takes the emulator
# seconds. So a copy in memory replaces the programs that tests start repeatedly, and their libraries.
mkdir -p /run/lib
in_memory() { # FILE...
	local file
	for file; do
		file=$(realpath "$file") && cp "$file" "/run/lib/${file//\//_}" && mount --bind "/run/lib/${file//\//_}" "$file" || return
	done
}
programs=(/bin/sh /bin/cat /bin/grep /usr/sbin/ipset /usr/sbin/nft /usr/sbin/conntrack /usr/sbin/ip /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi)
in_memory "${programs[@]}" $(ldd "${programs[@]}" 2>/dev/null | sed -n 's#^[^/]*\(/[^ :]*\) (0x.*#\1#p' | sort -u) /etc/ld.so.cache
