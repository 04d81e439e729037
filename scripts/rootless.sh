#!/usr/bin/env bash
# rootless.sh COMMAND...: runs the command without any privilege, root as the user "nobody", in a user namespace with
# a network of its own.
set -euo pipefail
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
echo "rootless.sh: running as $("${as[@]}" id -un), in a user namespace"
exec "${as[@]}" unshare --user --map-root-user --net --mount --propagation private sh -c '
  mount -t tmpfs none /run && mount -t sysfs none /sys && ip link set lo up && exec "$@"' lab "$@"
