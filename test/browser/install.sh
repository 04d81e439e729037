#!/usr/bin/env bash
# install.sh: installs Debian's browser and what drives it, if they are missing, for TestPageInABrowser and make pictures.
set -euo pipefail
! { command -v chromium && command -v chromedriver; } >/dev/null || exit 0
packages=(chromium chromium-driver fonts-dejavu-core)
for try in 1 2 3; do # the lists of a bare machine are missing or old, and mirrors fail now and then
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${packages[@]}" && exit 0
	[ $try = 3 ] || apt-get update || true
done
exit 1
