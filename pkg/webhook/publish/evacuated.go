package publish

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

const (
	// evacuatedPrefix begins the names of the slices of evacuated nodes. They come after those that describe all nodes, so
	// that the latter count for readers that know no evacuations.
	evacuatedPrefix = "out-of-use-"
	// goneRemembered is how long a Node that vanished while it was evacuated stays listed. By then its endpoints are gone,
	// too, because Kubernetes deletes the pods of a vanished Node after a minute.
	goneRemembered = 5 * time.Minute
	// prunedPatience is the pause in writing after the API server dropped a part of what was written.
	prunedPatience = time.Minute
)

// evacuates returns the condition that evacuates a Node; empty if none does.
func evacuates(node *corev1.Node) corev1.NodeConditionType {
	for _, wanted := range policy.DrainConditions {
		for _, condition := range node.Status.Conditions {
			if condition.Type == wanted && condition.Status == corev1.ConditionTrue {
				return wanted
			}
		}
	}
	return ""
}

// publishEvacuated brings the slices of evacuated nodes up to date. Without evacuations it deletes them.
func (r *reconciler) publishEvacuated(ctx context.Context, now time.Time, seen sight) error {
	if now.Sub(r.pruned) < prunedPatience {
		return nil
	}
	listed := map[string]content{}
	for i := range seen.listed {
		listed[seen.listed[i].Name] = content{seen.listed[i].Keys, seen.listed[i].Nodes}
	}
	writes := planEvacuated(listed, r.evacuees(now, seen))
	if len(writes) == 0 {
		return nil
	}
	if err := r.carryOut(ctx, seen, writes); err != nil {
		return err
	}
	return r.checkPruned(ctx, now)
}

// evacuees are the conditions of the nodes to be listed, by name: nodes that are evacuated, and nodes that vanished
// while they were.
func (r *reconciler) evacuees(now time.Time, seen sight) map[string]string {
	conditions, gone := map[string]string{}, map[string]time.Time{}
	if r.options.Evacuations {
		maps.Copy(conditions, seen.evacuated)
		for i := range seen.listed {
			for _, node := range seen.listed[i].Nodes {
				if _, isThere := seen.nodes[node.Name]; isThere || node.Evacuated == "" {
					continue
				}
				since, isKnown := r.gone[node.Name]
				if !isKnown {
					since = now
				}
				if now.Sub(since) < goneRemembered {
					gone[node.Name], conditions[node.Name] = since, node.Evacuated
				}
			}
		}
	}
	r.gone = gone
	return conditions
}

// checkPruned finds out whether the API server has kept the conditions. With an older version of the resource it
// silently drops them.
func (r *reconciler) checkPruned(ctx context.Context, now time.Time) error {
	seen, err := r.read(ctx)
	if err != nil {
		return fmt.Errorf("read back evacuated nodes: %w", err)
	}
	isPruned := false
	for i := range seen.listed {
		for _, node := range seen.listed[i].Nodes {
			isPruned = isPruned || node.Evacuated == ""
		}
	}
	switch {
	case !isPruned:
		r.pruned = time.Time{}
		return nil
	case r.pruned.IsZero():
		r.options.Log.Error("no Node is evacuated by a condition: the cluster's resource TopologySlice is older than this webhook, " +
			"and drops them; apply components/topology-slices/topologyslices.yaml of its manifests")
	}
	r.pruned = now
	r.options.Observer.PublishFailed()
	return nil
}

// isOfEvacuated reports whether a slice is one of those of evacuated nodes.
func isOfEvacuated(slice *topologyslice.TopologySlice) bool {
	_, is := slice.Labels[topologyslice.EvacuatedLabel]
	return is
}
