#!/usr/bin/env bash
# conformance.sh MODE [SUBJECT] [RUN]: the scenario kit against Fairlead (SUBJECT empty) or upstream kube-proxy (SUBJECT=kube-proxy), both built
# first. MODE is one mode or several with commas; userspace alone runs as an unprivileged user. Environment: LABS (how many labs at once), ARGS
# (more flags), KERNEL (6.1 or 6.12: under that stock kernel, in emulated machines; see test/vm/conformance.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-nftables} subject=${2:-fairlead} run=${3:-}
if [ "$mode" = userspace ] && [ "$subject" = fairlead ]; then
  # This mode needs no privilege, so it runs without any: root becomes the user "nobody" first, and the lab runs in a user namespace.
  dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
  cp bin/fairlead bin/fairlead-lab "$dir" && chmod -R a+rX "$dir"
  rootless=$PWD/scripts/rootless.sh
  (cd "$dir" && bash "$rootless" ./fairlead-lab conformance --bin "$dir/fairlead" --mode userspace --run "$run" ${LABS:+--labs "$LABS"} ${ARGS:-})
  exit
fi
[ "$(id -u)" = 0 ] || { echo "conformance.sh: needs root: it makes network namespaces" >&2; exit 1; }
flags=(--mode "$mode" --run "$run")
[ -z "${LABS:-}" ] || flags+=(--labs "$LABS")
read -ra more <<< "${ARGS:-}"
case $subject in
fairlead)
  [ -z "${KERNEL:-}" ] || exec bash test/vm/conformance.sh "$KERNEL" "$mode" --run "$run" "${more[@]}"
  exec bin/fairlead-lab conformance "${flags[@]}" "${more[@]}" ;;
kube-proxy)
  bash test/cluster/build.sh etcd kube-apiserver kube-proxy
  mkdir -p bin
  (cd test/cluster && CGO_ENABLED=0 go build -trimpath -o ../../bin/conformance-kube-proxy ./conformance)
  bin=${FAIRLEAD_CACHE:-.cache}/bin
  exec bin/conformance-kube-proxy --bin "$bin" "${flags[@]}" "${more[@]}" ;;
*)
  echo "conformance.sh: unknown SUBJECT '$subject': want fairlead (or nothing) or kube-proxy" >&2; exit 2 ;;
esac
