#!/usr/bin/env bash
# guest.sh MODE SERVICES AUDITS PAIRS : inside the test kernel, how long the commands of an agent in a mode take. From the third audit on, and from
# the first pair, each waits for twenty times the duration of the last audit, and waiting costs the host ten times as long.
. test/vm/memory.sh
. test/vm/modules.sh
in_memory bin/fairlead bin/bench-sync || exit 125
load_modules "nft_*" "ip_vs*"
export TMPDIR=/run
unshare -n bash -c 'ip link set lo up && exec bin/bench-sync -commands bin/fairlead -mode "$1" -n "$2" -audits "$3" -pairs "$4"' _ "$@"
exit $? # not exec'd: bench/sync compares its namespace with its parent's
