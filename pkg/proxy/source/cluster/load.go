package cluster

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Nodes says of which nodes Load reads the whole object.
type Nodes int

const (
	// OwnNode is what Run does: the other nodes' labels are read if a Service needs them.
	OwnNode Nodes = iota
	// AllNodes reads every node, so that the cluster can be seen from each of them.
	AllNodes
)

// Load lists everything once and returns it as Run would deliver it first. Unlike Run it does not try again: an error names what
// could not be listed.
func (c *Cluster) Load(ctx context.Context, nodes Nodes) (convert.Update, error) {
	s := newState(c.options.Node)
	loads := []func() error{
		func() error {
			return load(ctx, "services", c.resources.services, stripService(c.options.ServiceProxyName), s.putService)
		},
		func() error { return load(ctx, "endpointslices", c.resources.slices, stripSlice(), s.putSlice) },
		func() error {
			return load(ctx, "servicecidrs", c.resources.serviceCIDRs, stripServiceCIDR(), s.putServiceCIDR)
		},
		func() error { return load(ctx, "nodes/"+c.options.Node, c.resources.ownNode, stripNode(), s.putOwn) },
		func() error { return c.loadOthers(ctx, s, nodes) },
	}
	for _, load := range loads {
		if err := load(); err != nil {
			return convert.Update{}, err
		}
	}
	update, _ := s.take()
	return update, nil
}

// loadOthers loads the other nodes as far as they are asked for or needed, after the Services.
func (c *Cluster) loadOthers(ctx context.Context, s *state, nodes Nodes) error {
	set := s.coming
	if nodes == AllNodes {
		if set == nil {
			set = newNodeSet(keySet{})
		}
		put := func(_, now *object[*model.Node]) {
			if isGood, _ := s.judge(convert.NodeKind, now.name, now.refused); isGood && now.value.Name != c.options.Node {
				set.nodes[now.value.Name] = s.withLabelsInUse(now.value)
			}
		}
		if err := load(ctx, otherNodes, c.resources.allNodes, stripNode(), put); err != nil {
			return err
		}
	} else if set != nil {
		put := func(_, now *object[*model.Node]) { s.putNode(set, now) }
		if err := load(ctx, otherNodes, c.resources.otherNodes, stripMetadata(maps.Clone(set.keys)), put); err != nil {
			return err
		}
	}
	if set != nil {
		s.enforceNodes(set) // also those that no key needs: somebody asked for them
	}
	return nil
}

// load lists a resource page by page, so that its objects are never all in memory as they were sent.
func load[T any](
	ctx context.Context, resource string, listWatch *cache.ListWatch, transform cache.TransformFunc, put func(before, now *object[T]),
) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return listWatch.ListWithContext(ctx, options)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(sent runtime.Object) error {
		stripped, err := transform(sent)
		if err != nil {
			return err
		}
		put(nil, stripped.(*object[T]))
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", resource, err)
	}
	return nil
}
