package app

// acceleratedManifests: web has one endpoint, sticky two, guarded may be asked from FROM only.
const acceleratedManifests = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1, "fd96::1"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: t, port: 53, protocol: TCP, nodePort: 30080}, {name: u, port: 53, protocol: UDP, nodePort: 30081}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: t, port: 8080, protocol: TCP}, {name: u, port: 8080, protocol: UDP}]
endpoints: [{addresses: [10.1.0.END]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-6, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: t, port: 8080, protocol: TCP}, {name: u, port: 8080, protocol: UDP}]
endpoints: [{addresses: ["fd01::END"]}]
---
apiVersion: v1
kind: Service
metadata: {name: guarded}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.2
  clusterIPs: [10.96.0.2]
  loadBalancerSourceRanges: [FROM]
  allocateLoadBalancerNodePorts: false
  ports: [{name: t, port: 80, protocol: TCP}]
status: {loadBalancer: {ingress: [{ip: 10.97.0.2}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: guarded-4, labels: {kubernetes.io/service-name: guarded}}
addressType: IPv4
ports: [{name: t, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.1.0.1]}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky, annotations: {fairlead.dev/offload: "OWN"}}
spec:
  clusterIP: 10.96.0.3
  clusterIPs: [10.96.0.3]
  sessionAffinity: ClientIP
  ports: [{name: t, port: 80, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sticky-4, labels: {kubernetes.io/service-name: sticky}}
addressType: IPv4
ports: [{name: t, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.1.0.1]}, {addresses: [10.1.0.2]}]
`
