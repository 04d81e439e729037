// Package deploy tests what a platform team installs: the manifests, the kustomize overlays, the Helm chart, the systemd unit, the alerts, the
// board and the pages of docs/operate. It applies none of it to a cluster. It renders the files, decodes them strictly and compares them with
// what the agent accepts and serves. Agents and Prometheus run in namespaces that the tests create.
package deploy
