// Package deploy tests what a platform team is given: the manifests, the kustomize overlays, the Helm chart, the systemd unit, the alerts, the
// board and the pages of docs/operate. Nothing of it is applied to a cluster here: it is rendered, read strictly and held against
// what the agent takes and serves. Agents and Prometheus run in namespaces that the tests make.
package deploy
