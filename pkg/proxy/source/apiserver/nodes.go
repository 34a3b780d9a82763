package apiserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/vicinity-proxy/vicinity/pkg/lease"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// otherNodes watches the other nodes while a Service needs them.
func otherNodes(w *Watcher) *onDemandWatch {
	return &onDemandWatch{
		watcher: w, interestChanged: notify.NewSignal(),
		choose: w.chooseSource, prepareSource: (*state).switchSource,
		onStart: func(s *state) {
			w.topologyPublisher.Observed = lease.Observed{}
			s.nodes.StartListTimeout(s.now)
		},
		interestOf: func(s *state) interest { return interest{s.nodes.NeedsPeers(), s.nodes.NeedsLabels()} }, drop: (*state).dropPeers,
		onSourceChange: w.options.OnTopologySource,
	}
}

// Limits of the existence checks of nodes that lost their label: about maxNodesPerCheck in a request, and a round at
// most once in nodeCheckInterval, regardless of how often labels change. When 300 nodes lose theirs within 15 s, each
// of 5,000 proxies sends some 16 requests.
const (
	maxNodesPerCheck  = 100
	nodeCheckInterval = time.Second
)

// checkNodesLoop checks whether nodes that lost their watched label still exist: to a watch that selects by label, a
// deleted node looks the same. It runs until the context ends.
func (w *Watcher) checkNodesLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.nodesToCheck:
		}
		var hostnames map[string]string
		w.change(func(s *state) { hostnames = s.nodes.TakePendingChecks() })
		for names := range slices.Chunk(slices.Sorted(maps.Keys(hostnames)), maxNodesPerCheck) {
			w.checkNodesExist(ctx, names, hostnames)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(nodeCheckInterval):
		}
	}
}

// checkNodesExist lists nodes by their hostname labels to find out whether they exist: the API server serves such a
// list from its cache, at a version not older than that of the lost label. Without a response within nodes.checkTimeout
// the nodes count as existing.
func (w *Watcher) checkNodesExist(ctx context.Context, names []string, hostnames map[string]string) {
	exist := map[string]bool{}
	var values []string
	for _, name := range names {
		exist[name] = hostnames[name] == ""
		if hostnames[name] != "" {
			values = append(values, hostnames[name])
		}
	}
	requirement, err := labels.NewRequirement(corev1.LabelHostname, selection.In, values)
	if err != nil { // no node has a hostname label
		w.change(func(s *state) { s.nodes.ResolveChecks(exist, s.now) })
		return
	}
	version := "0"
	if newest := w.nodesVersion.Load(); newest != nil {
		version = *newest
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.listWatches.nodes.List(ctx, metav1.ListOptions{
		LabelSelector:   labels.NewSelector().Add(*requirement).String(),
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		w.options.Log.Debug("failed to check whether nodes that lost a label exist; treating them as existing", "nodes", names, "error", err)
		return
	}
	for i := range list.Items {
		if _, isChecked := hostnames[list.Items[i].Name]; isChecked {
			exist[list.Items[i].Name] = true
		}
	}
	w.change(func(s *state) { s.nodes.ResolveChecks(exist, s.now) })
}

// IsReady reports whether a Node is Ready according to the API server; false if it was deleted.
func (w *Watcher) IsReady(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	selector := convert.Selector{Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	list, err := listWatch(w.listWatches.services, convert.Nodes.Resource, selector).ListWithContext(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return false, fmt.Errorf("check whether node %s is Ready: %w", name, err)
	}
	nodes, isList := list.(*corev1.NodeList)
	return isList && slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
	}), nil
}
