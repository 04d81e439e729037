#!/usr/bin/env bash
# guest.sh MODE SERVICES AUDITS PAIRS : inside the test kernel, what the commands of an agent in a mode take. From the third audit on, and from the
# first pair, each waits for twenty times what the last audit took, and waiting costs the host ten times as long.
. test/vm/memory.sh
in_memory bin/fairlead bin/bench-sync || exit 125
# all at once: one by one, as the agent asks for them, they take a minute
modules=()
for file in $(find "/run/m/lib/modules/$(uname -r)/kernel/net/" -name 'nft_*.ko*' -o -name 'ip_vs*.ko*'); do
	file=${file##*/}
	modules+=("${file%%.ko*}")
done
/run/modprobe -a "${modules[@]}" || echo "guest.sh: not all modules were loaded"
export TMPDIR=/run
unshare -n bash -c 'ip link set lo up && exec bin/bench-sync -commands bin/fairlead -mode "$1" -n "$2" -audits "$3" -pairs "$4"' _ "$@"
exit $? # not exec'd: bench/sync compares its namespace with its parent's
