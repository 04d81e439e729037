#!/usr/bin/env bash
# kit.sh FLAGS... : runs inside the test kernel: bin/fairlead-lab conformance FLAGS. Each start of a program reads its file anew from the host, which
# takes the emulator seconds; so the two programs, which are started hundreds of times, are copied to memory first.
mkdir -p /run/bin && cp bin/fairlead bin/fairlead-lab /run/bin || exit 125
exec /run/bin/fairlead-lab conformance --bin /run/bin/fairlead "$@"
