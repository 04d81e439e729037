#!/usr/bin/env bash
# run.sh : KEP-4963's evaluation, in an emulated machine whose clock counts instructions: its figures are good for ratios only, and do not depend on
# other work of this machine. Needs no KVM.
#   KERNEL=6.1 ROUNDS=5 PARTS=thresholds,placement,crossover SCALE=1 OUT=bench/results/acceleration.json SIZES="1000,4000,..." VARIANTS=regexp LIMIT=60m
set -euo pipefail
cd "$(dirname "$0")/../.."
kernel=${KERNEL:-6.1}
bash test/vm/fetch.sh "$kernel"
export CGO_ENABLED=0
go build -trimpath -o bin/vm-init ./test/vm/init
go build -trimpath -o bin/vm-run ./test/vm/run
go build -trimpath -o bin/fairlead ./cmd/fairlead
go build -trimpath -o bin/bench-acceleration ./bench/acceleration
mkdir -p bench/results
more=(-variants "${VARIANTS:-}")
[ -z "${SIZES:-}" ] || more=(-sizes "$SIZES")
bin/vm-run -icount -kernel "$kernel" -limit "${LIMIT:-60m}" -- bin/bench-acceleration -out "${OUT:-bench/results/acceleration.json}" -rounds "${ROUNDS:-5}" \
	-scale "${SCALE:-1}" -parts "${PARTS:-thresholds,placement,crossover}" "${more[@]}"
if /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then # Debian: python3-matplotlib
	mkdir -p bench/results/acceleration
	/usr/bin/python3 bench/acceleration/plot.py bench/results/acceleration "${OUT:-bench/results/acceleration.json}"
	cat bench/results/acceleration/results.md
fi
