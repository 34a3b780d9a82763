package apiserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Nodes selects the nodes whose whole object Load reads.
type Nodes int

const (
	// LocalNode reads the other nodes' labels only if a Service needs them, as Run does.
	LocalNode Nodes = iota
	// AllNodes reads every node with all of its labels, so that the caller can evaluate the cluster from each node.
	AllNodes
)

// Load lists everything once and returns the first update that Run would deliver. Unlike Run it does not retry: an
// error names the resource that could not be listed.
func (w *Watcher) Load(ctx context.Context, which Nodes) (convert.Update, error) {
	s := newState(w.options.Node)
	s.now, s.nodes.AllLabels = time.Now(), which == AllNodes
	w.state, w.lastKnownGood = s, convert.LastKnownGoodValues(w.options.LastKnownGood)
	for _, stream := range w.streams {
		if err := stream.load(ctx, s); err != nil {
			return convert.Update{}, err
		}
	}
	if err := w.loadDemands(ctx, s); err != nil {
		return convert.Update{}, err
	}
	if err := w.loadPeers(ctx, s, which); err != nil {
		return convert.Update{}, err
	}
	update, _ := s.takeUpdate()
	return update, nil
}

// loadPeers loads the other nodes if they are requested or needed, after the Services.
func (w *Watcher) loadPeers(ctx context.Context, s *state, which Nodes) error {
	if which != AllNodes && !s.nodes.NeedsPeers() {
		return nil
	}
	peerSource := w.sourceFrom(model.TopologyFromNodes)
	if which == AllNodes {
		// Read in full, like this node: the caller evaluates the cluster from each node.
		peerSource.requests[0].kind, peerSource.requests[0].listWatch = convert.Nodes, w.listWatches.allNodes
	} else {
		if chosen := w.chooseSource(ctx, nil); chosen != nil {
			peerSource = *chosen
		}
		s.switchSource(&peerSource)
	}
	for _, request := range peerSource.requests {
		if err := w.newStream(request).load(ctx, s); err != nil {
			return err
		}
		s.nodes.OnListed(request.kind, s.now)
	}
	s.nodes.SetAllKnown(true)
	s.deliverBlocked()
	w.options.OnTopologySource(peerSource.resource)
	return nil
}

// NodeNames lists the names of all Nodes except the watcher's.
func (w *Watcher) NodeNames(ctx context.Context) ([]string, error) {
	var names []string
	err := forEachPage(ctx, w.listWatches.byKind[convert.OtherNodes], func(sent runtime.Object) error {
		node, err := meta.Accessor(sent)
		if err == nil {
			names = append(names, node.GetName())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list names of Nodes: %w", err)
	}
	return names, nil
}

// forEachPage lists a resource page by page, so that memory never holds all objects in the form in which they were
// sent.
func forEachPage(ctx context.Context, listWatch *cache.ListWatch, visit func(runtime.Object) error) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return listWatch.ListWithContext(ctx, options)
	})
	return list.EachListItem(ctx, metav1.ListOptions{}, visit)
}

// load lists a resource. An optional resource that the API server does not have counts as empty, and so does one that
// is watched on demand and may not be listed.
func (s *resourceStream) load(ctx context.Context, state *state) error {
	err := forEachPage(ctx, s.listWatch, func(sent runtime.Object) error {
		s.put(state, s.transform(sent))
		return nil
	})
	switch {
	case s.isMissing(err):
		s.watcher.options.Log.Info(s.kind.Optional.Missing)
		state.markUnavailable(s.kind)
		return nil
	case s.kind.IsOnDemand && apierrors.IsForbidden(err):
		s.watcher.options.Log.Warn(s.kind.Optional.Forbidden)
		state.markUnavailable(s.kind)
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", s.resource, err)
	}
	return nil
}

// put processes an object. If it is invalid, the last known good version of a running proxy is used.
func (s *resourceStream) put(state *state, received *object) {
	if len(received.rejected) > 0 {
		if good, isKnown := s.watcher.lastKnownGood[received.rejected[0].Subject()]; isKnown {
			state.put(s.kind, &object{name: received.name, uid: received.uid, value: good})
		}
	}
	state.put(s.kind, received)
}
