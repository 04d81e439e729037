#!/usr/bin/env bash
# kit.sh FLAGS... : runs inside the test kernel: bin/fairlead-lab conformance FLAGS. Modules are loaded beforehand and all at once: one by one, as
# rules ask for them, they take the first agents more than a minute.
. test/vm/memory.sh
in_memory bin/fairlead bin/fairlead-lab || exit 125
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
exec bin/fairlead-lab conformance --bin bin/fairlead "$@"
