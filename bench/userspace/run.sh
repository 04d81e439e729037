#!/usr/bin/env bash
# run.sh : userspace mode compared with HAProxy and nginx (stream) of Debian, on loopback, in turn, the same work
# for each.
#   FOR=2s ROUNDS=3 WORKERS=16 STREAMS=4 OUT=bench/results/userspace.json THREADS=2 ONLY=short|bulk
# The Debian packages are unpacked below the cache, not installed. Nothing here needs root.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${FAIRLEAD_CACHE:-$root/.cache}
deb=$cache/peers-deb
threads=${THREADS:-$(nproc)}
if [ ! -x "$deb/root/usr/sbin/nginx" ]; then
  mkdir -p "$deb"
  (cd "$deb" && apt-get download haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 nginx libnginx-mod-stream && for d in *.deb; do dpkg -x "$d" root; done)
fi
LD_LIBRARY_PATH=$(dirname "$(find "$deb/root/usr/lib" -name 'liblua5.3.so*' -print -quit)") # its folder is named after the architecture
export LD_LIBRARY_PATH
tmp=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$tmp"' EXIT
(cd "$root" && CGO_ENABLED=0 go build -o "$tmp/bench" ./bench/userspace && CGO_ENABLED=0 go build -trimpath -o "$tmp/fairlead" ./cmd/fairlead)

cat > "$tmp/haproxy.cfg" <<END
global
  nbthread $threads
  maxconn 5000
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option splice-auto
listen short
  bind 127.0.0.1:19011
  server s 127.0.0.1:19001
listen bulk
  bind 127.0.0.1:19012
  server s 127.0.0.1:19002
END
cat > "$tmp/nginx.conf" <<END
load_module $deb/root/usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
worker_processes $threads;
pid $tmp/nginx.pid;
error_log $tmp/nginx.log;
events { worker_connections 5000; }
stream {
  server { listen 127.0.0.1:19021; proxy_pass 127.0.0.1:19001; }
  server { listen 127.0.0.1:19022; proxy_pass 127.0.0.1:19002; }
}
END
mkdir "$tmp/manifests"
. "$root/bench/userspace/service.sh"
service bench 10.96.0.30 short=19031=19001 bulk=19032=19002

"$tmp/bench" -serve & pids+=($!)
"$deb/root/usr/sbin/haproxy" -db -f "$tmp/haproxy.cfg" > "$tmp/haproxy.log" 2>&1 & haproxy=$!; pids+=($haproxy)
"$deb/root/usr/sbin/nginx" -e "$tmp/nginx.log" -p "$tmp" -c "$tmp/nginx.conf" & nginx=$!; pids+=($nginx)
"$tmp/fairlead" run --proxy-mode userspace --userspace-addresses loopback --manifests "$tmp/manifests" --hostname-override bench \
  --healthz-bind-address 127.0.0.1:19033 --metrics-bind-address 127.0.0.1:19034 > "$tmp/fairlead.log" 2>&1 & fairlead=$!; pids+=($fairlead)
for at in 127.0.0.1:19001 127.0.0.1:19002 127.0.0.1:19011 127.0.0.1:19021 127.96.0.30:19031 127.96.0.30:19032; do
  for _ in $(seq 300); do (: < "/dev/tcp/${at%:*}/${at#*:}") 2>/dev/null && continue 2; sleep 0.1; done
  echo "run.sh: nobody listens at $at" >&2; cat "$tmp"/*.log >&2; exit 1
done
out=${OUT:-$root/bench/results/userspace.json}
mkdir -p "$(dirname "$out")"
"$tmp/bench" -for "${FOR:-2s}" -rounds "${ROUNDS:-3}" -workers "${WORKERS:-16}" -streams "${STREAMS:-4}" -only "${ONLY:-}" -out "$out" \
  direct,127.0.0.1:19001,127.0.0.1:19002,0 "fairlead,127.96.0.30:19031,127.96.0.30:19032,$fairlead" \
  "haproxy,127.0.0.1:19011,127.0.0.1:19012,$haproxy" "nginx,127.0.0.1:19021,127.0.0.1:19022,$nginx"
