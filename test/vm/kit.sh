#!/usr/bin/env bash
# kit.sh FLAGS... : runs inside the test kernel: bin/fairlead-lab conformance FLAGS. Each start of a program reads its file anew from the host, which
# takes the emulator seconds; so the two programs, which are started hundreds of times, are copied to memory first. Modules are loaded
# beforehand and all at once: one by one, as rules ask for them, they take the first agents more than a minute.
mkdir -p /run/bin /run/lib && cp bin/fairlead bin/fairlead-lab /run/bin || exit 125
# The same for what the kit runs, and for the libraries of it: a copy in memory stands in the place of each.
programs=(/bin/sh /usr/sbin/nft /usr/sbin/conntrack /usr/sbin/ip /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi)
for file in "${programs[@]}" $(ldd "${programs[@]}" 2>/dev/null | sed -n 's#^[^/]*\(/[^ :]*\) (0x.*#\1#p' | sort -u) /etc/ld.so.cache; do
	file=$(realpath "$file") && cp "$file" "/run/lib/${file//\//_}" && mount --bind "/run/lib/${file//\//_}" "$file"
done
modules=("nft_*")
case " $* " in
*ipvs*) modules+=("ip_vs_*" "ip_set_hash_*") ;;
*iptables*) modules+=("xt_*" "ipt_REJECT" "ip6t_REJECT") ;;
esac
names=()
for pattern in "${modules[@]}"; do
	for name in $(find "/run/m/lib/modules/$(uname -r)/kernel/net/" -name "$pattern.ko*"); do
		name=${name##*/}
		names+=("${name%%.ko*}")
	done
done
/run/modprobe -a "${names[@]}" || echo "kit.sh: not all modules were loaded"
exec /run/bin/fairlead-lab conformance --bin /run/bin/fairlead "$@"
