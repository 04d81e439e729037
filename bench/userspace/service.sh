# shellcheck shell=bash
# service NAME ADDRESS NAME=PORT=ENDPOINT... : a manifest.
service() {
  local name=$1 addr=$2 ports="" targets="" p
  shift 2
  for p in "$@"; do
    IFS== read -r n port to <<< "$p"
    ports+="{name: $n, port: $port, targetPort: $to}, " targets+="{name: $n, port: $to}, "
  done
  cat > "$tmp/manifests/$name.yaml" <<END
apiVersion: v1
kind: Service
metadata: {name: $name, namespace: default}
spec: {clusterIP: $addr, clusterIPs: ["$addr"], ipFamilies: [IPv4], ports: [$ports]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: $name-4, namespace: default, labels: {kubernetes.io/service-name: $name}}
addressType: IPv4
ports: [$targets]
endpoints: [{addresses: ["127.0.0.1"], conditions: {ready: true}}]
END
}
