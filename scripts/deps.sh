#!/usr/bin/env bash
# Installs the programs that the lab and the tests call, if they are missing.
set -euo pipefail
declare -A package=([nft]=nftables [iptables]=iptables [ip]=iproute2 [conntrack]=conntrack [curl]=curl [gcc]=gcc)
missing=()
for program in "${!package[@]}"; do
	command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
[ "$(id -u)" = 0 ] || { echo "fairlead: missing programs, and only root can install them: ${missing[*]}" >&2; exit 1; }
echo "installing: ${missing[*]}"
log=$(mktemp)
{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
	{ cat "$log" >&2; exit 1; }
rm -f "$log"
