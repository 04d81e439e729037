#!/usr/bin/env bash
# kit.sh FLAGS... : runs inside the test kernel: bin/fairlead-lab conformance FLAGS.
. test/vm/memory.sh
. test/vm/modules.sh
in_memory bin/fairlead bin/fairlead-lab || exit 125
modules=("nft_*")
case " $* " in
*ipvs*) modules+=("ip_vs_*" "ip_set_hash_*") ;;
*iptables*) modules+=("xt_*" "ipt_REJECT" "ip6t_REJECT") ;;
esac
load_modules "${modules[@]}"
exec bin/fairlead-lab conformance --bin bin/fairlead "$@"
