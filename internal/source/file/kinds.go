package file

import (
	"fmt"
	"strings"
)

// kindOf returns the kind of an object. 0 with an empty reason means a kind that
// other programs read. A reason is a message for the author of the file.
func kindOf(t typeMeta) (k kind, why string) {
	group, version := "", t.APIVersion
	if g, v, ok := strings.Cut(t.APIVersion, "/"); ok {
		group, version = g, v
	}
	if group == "kustomize.config.k8s.io" {
		return 0, ofKustomize
	}
	for _, known := range []struct {
		group, version, name string
		kind                 kind
	}{
		{"", "v1", "Service", serviceKind},
		{"discovery.k8s.io", "v1", "EndpointSlice", sliceKind},
		{"", "v1", "Node", nodeKind},
		{"networking.k8s.io", "v1", "ServiceCIDR", cidrKind},
	} {
		if t.Kind != known.name || (group != known.group && !ofKubernetes(group)) {
			continue
		}
		if group == known.group && version == known.version {
			return known.kind, ""
		}
		want := known.version
		if known.group != "" {
			want = known.group + "/" + known.version
		}
		return 0, fmt.Sprintf("%s of apiVersion %q is not read: the apiVersion must be %s", t.Kind, t.APIVersion, want)
	}
	switch {
	case t.Kind == "Endpoints" && group == "":
		return 0, "Endpoints are not read: write an EndpointSlice"
	case !ofKubernetes(group):
		return 0, fmt.Sprintf("unknown kind %s (apiVersion %q): ignored", t.Kind, t.APIVersion)
	case group == "" && !isCore(t.Kind), group == "discovery.k8s.io":
		return 0, fmt.Sprintf("unknown kind %s: ignored", t.Kind)
	}
	return 0, ""
}

const (
	ofKustomize = "this is for kustomize and defines no object for Services: ignored; changes by kustomize are not applied: write the output of kubectl kustomize into the folder"
	ofHelm      = "this is for Helm and defines no object for Services: ignored; write the output of helm template into the folder"
)

// ofOtherProgram returns a message for a file without a kind whose name belongs to another program; "" if the name is
// of no such program.
func ofOtherProgram(name string) string {
	switch name {
	case "kustomization.yaml", "kustomization.yml":
		return ofKustomize
	case "Chart.yaml", "values.yaml":
		return ofHelm
	}
	return ""
}

// ofKubernetes reports whether a group is one of Kubernetes itself. A kind of such a
// group that a proxy does not use is not reported.
func ofKubernetes(group string) bool {
	switch group {
	case "", "apps", "batch", "autoscaling", "policy", "extensions":
		return true
	}
	return strings.HasSuffix(group, ".k8s.io")
}

// isCore reports whether a kind of group "" is one that manifests are written for.
// A misspelt Service also has this group.
func isCore(kind string) bool {
	switch kind {
	case "Namespace", "Pod", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolume", "PersistentVolumeClaim",
		"ReplicationController", "LimitRange", "ResourceQuota", "PodTemplate", "Event", "Binding", "ComponentStatus":
		return true
	}
	return false
}
