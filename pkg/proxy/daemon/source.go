package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/authorization"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
)

// objects is the source of the cluster's objects: a directory of manifests, or an API server.
type objects interface {
	// Run delivers everything first, and then the changes, until ctx ends.
	Run(ctx context.Context, deliver func(convert.Update)) error
	// Rejections returns the rejected objects, with their active versions. It is safe for concurrent use.
	Rejections() []convert.Rejection
}

// source is the source of the objects, and the other users of the API server. With a directory the reporter reports
// nothing, and there is no connection.
type source struct {
	objects
	connection
	reporter eventReporter
}

// newSource returns the source, and sends no request yet. If monitor is not nil, the watch reports to it on which nodes
// proxies run.
func newSource(c *common, monitor *reachabilityMonitor) (*source, error) {
	onTopologySource := func(resource string) { // the source of other nodes' labels
		c.recorder.TopologyFrom(resource)
		c.status.SetTopologySource(resource)
	}
	if c.options.Manifests != "" {
		onTopologySource(model.TopologyFromNodes) // manifests have no other source
		return &source{objects: manifests.NewManifests(c.options.Manifests, c.options.View, c.log)}, nil
	}
	c.recorder.CountAPIRequests()
	s := &source{}
	options := apiserver.Options{
		Log: c.log, OnTopologySource: onTopologySource, OnDemandRenewed: c.recorder.DemandRenewed,
		// The last state from the API server stays active, so nothing is wrong yet.
		OnInterrupted: func(resource string, since time.Time, err error) {
			c.status.WatchInterrupted(resource, since, err.Error())
			c.recorder.WatchInterrupted(resource, since)
		},
		OnResumed: func(resource string) {
			c.status.WatchResumed(resource)
			c.recorder.WatchResumed(resource)
			if resource == "nodes/"+c.options.Node { // it may be a new Node of the same name
				s.condition.Recheck()
			}
		},
	}
	if monitor != nil {
		options.OnProxyAddresses = monitor.setProxyNodes
	}
	var err error
	if s.connection, err = c.options.connect(options); err != nil {
		return nil, err
	}
	c.recorder.CollectFrom(metrics.EventsDropped, func(add metrics.Add) { add(float64(s.recorder.Dropped())) })
	if s.condition != nil {
		s.condition.OnAttempt = func(failing bool) { c.recorder.SetBool(metrics.NodeConditionUnwritten, failing) }
	}
	s.objects = s.cluster
	s.reporter = eventReporter{node: c.options.Node, recorder: s.recorder, cluster: s.cluster}
	return s, nil
}

// connection holds the clients of an API server.
type connection struct {
	cluster  *apiserver.Watcher
	recorder *events.Recorder
	reviewer authorization.Reviewer
	peers    *kube.PeerTracker // the addresses at which all clients reach it
	// condition is nil if the Node's condition is not written.
	condition *condition.Writer
}

// connect creates the clients. No request is sent yet.
func (o *Options) connect(options apiserver.Options) (connection, error) {
	config, err := o.Connection.Config()
	if err != nil {
		return connection{}, fmt.Errorf("connect to the API server: %w", err)
	}
	c := connection{peers: kube.NewPeerTracker(config), reviewer: authorization.NewReviewer(config)}
	options.View = o.View
	options.NodeTopology, options.TopologyNamespace, options.Proxies = o.NodeTopology, o.TopologyNamespace, o.ProxyService
	var errs [3]error
	c.cluster, errs[0] = apiserver.New(config, options)
	c.recorder, errs[1] = events.Connect(config, o.Node, options.Log)
	if o.NodeCondition {
		c.condition, errs[2] = condition.NewWriter(config, o.Node, options.Log)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return connection{}, fmt.Errorf("connect to the API server: %w", err)
	}
	return c, nil
}

// newObjects returns the component that delivers the objects. A directory also has the node addresses that the monitor
// needs.
func newObjects(c *common, src *source, feed *feed, monitor *reachabilityMonitor) component {
	isDirectory := c.options.Manifests != ""
	return component{run: func(ctx context.Context) error {
		err := src.Run(ctx, func(update convert.Update) {
			if monitor != nil && isDirectory {
				monitor.nodesChanged(update.Change.Nodes)
			}
			feed.deliver(ctx, update)
		})
		if err != nil && isDirectory {
			return fmt.Errorf("load manifests: %w", err)
		}
		return err
	}}
}

// newInterfaces returns the component that delivers the addresses of this machine's interfaces.
func newInterfaces(c *common, barrier *startupBarrier) component {
	return component{run: func(ctx context.Context) error {
		return interfaces.Watch(ctx, c.log, func(addrs []netip.Addr) { barrier.deliverAddrs(ctx, addrs) })
	}}
}

// newAPIServers returns the component that delivers the address at which the API server is reached, if there is one,
// and again whenever it changes.
func newAPIServers(src *source, barrier *startupBarrier, monitor *reachabilityMonitor) component {
	if src.peers == nil {
		return component{}
	}
	return component{run: unfailing(func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-src.peers.Changed():
			}
			barrier.deliverAsync(ctx, model.Change{APIServers: src.peers.Addrs()})
			if monitor != nil {
				monitor.prober.SetAPIServers(src.peers.Addrs())
			}
		}
	})}
}
