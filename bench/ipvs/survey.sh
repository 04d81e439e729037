#!/usr/bin/env bash
# [PART=regexp] [TIMES=3x] survey.sh [SERVICES] : the cost of one complete read of the actual state in ipvs mode, by its parts, in a machine that
# counts instructions (kernel 6.1; KERNEL=6.12).
# Its CPU profile is written to bin/ipvs.prof: go tool pprof bin/ipvs.test bin/ipvs.prof. At 1000 Services of ten endpoints it takes five minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
kernel=${KERNEL:-6.1}
if [ "${1:-}" = inside ]; then # inside the test kernel
	. test/vm/memory.sh
	. test/vm/modules.sh
	in_memory bin/ipvs.test || exit 125
	load_modules "nft_*" "ip_vs*"
	export TMPDIR=/run FAIRLEAD_BENCH_SERVICES=$2
	bin/ipvs.test -test.run '^$' -test.bench "BenchmarkSurvey/$3" -test.benchtime "$4" -test.benchmem -test.cpuprofile /run/cpu.prof
	exec cp /run/cpu.prof bin/ipvs.prof
fi
bash test/vm/fetch.sh "$kernel"
export CGO_ENABLED=0
go test -c -trimpath -o bin/ipvs.test ./internal/dataplane/ipvs
for program in test/vm/init:vm-init test/vm/run:vm-run; do go build -trimpath -o "bin/${program#*:}" "./${program%:*}"; done
exec bin/vm-run -kernel "$kernel" -steady -memory 3072 -limit 2h -- /bin/bash bench/ipvs/survey.sh inside "${1:-1000}" "${PART:-}" "${TIMES:-3x}"
