package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RemoveTaint removes every taint with this key from the agent's own Node, and keeps the others. It reports whether
// there was one. The patch contains the resource version of the Node that was read, so that a taint that another
// program adds concurrently is not lost. In that case the server refuses the patch, which is an ordinary error, and the
// caller retries.
func (s *Source) RemoveTaint(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	var nodes corev1.NodeList
	own := metav1.ListOptions{FieldSelector: "metadata.name=" + s.config.NodeName} // a list, because the agent has no right to "get" a Node
	if err := s.clients.events.Get().Resource("nodes").VersionedParams(&own, metav1.ParameterCodec).Do(ctx).Into(&nodes); err != nil {
		return false, fmt.Errorf("read node %s: %w", s.config.NodeName, err)
	}
	at := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == s.config.NodeName })
	if at < 0 {
		return false, fmt.Errorf("read node %s: the Node does not exist yet", s.config.NodeName)
	}
	node := nodes.Items[at]
	taints := slices.Clone(node.Spec.Taints)
	others := slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
	if len(others) == len(node.Spec.Taints) {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": others},
	})
	if err != nil {
		return false, err
	}
	if err := s.clients.events.Patch(types.MergePatchType).Resource("nodes").Name(node.Name).Body(patch).Do(ctx).Error(); err != nil {
		return false, fmt.Errorf("remove the taint %s from node %s: %w", key, node.Name, err)
	}
	return true, nil
}
