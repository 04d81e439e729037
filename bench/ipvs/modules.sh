#!/usr/bin/env bash
# modules.sh : inside the test kernel, to be read by a script: loads what nftables and IPVS need.
# All at once: one by one, as the agent asks for them, they take a minute
modules=()
for file in $(find "/run/m/lib/modules/$(uname -r)/kernel/net/" -name 'nft_*.ko*' -o -name 'ip_vs*.ko*'); do
	file=${file##*/}
	modules+=("${file%%.ko*}")
done
/run/modprobe -a "${modules[@]}" || echo "not all modules were loaded"
