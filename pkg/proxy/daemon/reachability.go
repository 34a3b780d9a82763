package daemon

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability/probe"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// UnreachableNodes selects how nodes that do not answer this one are treated.
type UnreachableNodes string

// The zero value is IgnoreUnreachable. The flag's default is DemoteUnreachable: in an hour of the suites with
// ReportUnreachable there was no false detection.
const (
	DemoteUnreachable UnreachableNodes = "enforce" // their endpoints are tried last
	ReportUnreachable UnreachableNodes = "observe" // they are logged and counted
	IgnoreUnreachable UnreachableNodes = "off"     // no node is probed
)

// udpFlowRetention is how long UDP flows to an unreachable node are kept. The kernel itself, and every NAT on the
// path, drops a flow after two minutes without a packet (nf_conntrack_udp_timeout_stream).
const noSessionSurvives = 2 * time.Minute

// probesNodes reports whether nodes are probed.
func (u UnreachableNodes) probesNodes() bool { return u == DemoteUnreachable || u == ReportUnreachable }

// reachabilityMonitor detects which nodes do not answer this one.
type reachabilityMonitor struct {
	*common
	prober *probe.Prober
	avoid  bool
	port   uint16 // of /healthz on all nodes

	mutex            sync.Mutex
	waiting          model.Change  // changes that are not delivered to the proxy yet
	addressesChanged notify.Signal // holds a signal while pending is not empty
	nodes            map[string]*model.Node
	// demotions are those that the proxy has, or soon will have. Only the prober's goroutine uses it.
	avoided map[model.DemotionKey]*model.Demotion
}

// newReachabilityMonitor returns the monitor and its component; nil and an empty component if the options do not enable
// it.
func newReachabilityMonitor(c *common, shared, table conntrack.Table, of *serviceindex.Index, isLocal selection.IsLocal,
	to *startupBarrier) (*reachabilityMonitor, part) {
	if !c.options.UnreachableNodes.probesNodes() {
		return nil, part{}
	}
	w := &reachabilityMonitor{
		common: c, avoid: c.options.UnreachableNodes == DemoteUnreachable, addressesChanged: notify.NewSignal(), nodes: map[string]*model.Node{},
	}
	if c.options.Manifests == "" && c.options.ProxyService.Name == "" {
		w.avoid = false
		c.log.Warn("cannot detect unreachable nodes: without --proxy-service their addresses are unknown")
	}
	if healthz, err := netip.ParseAddrPort(c.options.Settings.HealthzBindAddress); err == nil {
		w.port = healthz.Port()
	}
	w.prober = probe.New(probe.Options{
		Self: c.options.Node, HealthzPort: w.port, Table: shared, Unthrottled: table, Index: of, Observer: w, IsLocal: isLocal,
	})
	return w, part{
		run:     unfailing(func(ctx context.Context) { w.run(ctx, to) }),
		summary: func(s *status.Summary) { s.Reachability = w.summary() },
	}
}

// run probes and decides until ctx ends, and delivers the changes to the proxy.
func (w *reachabilityMonitor) run(ctx context.Context, to *startupBarrier) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { w.prober.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.addressesChanged:
		}
		w.mutex.Lock()
		change := w.waiting
		w.waiting = model.Change{}
		w.mutex.Unlock()
		to.deliverAsync(ctx, change)
	}
}

// setProxyNodes receives the nodes on which proxies run.
func (w *reachabilityMonitor) proxiesAt(nodes map[string]*model.Node) {
	if w.port == 0 {
		return
	}
	ports := reachability.Ports(w.port)
	at, probed := make(map[string]probe.Node, len(nodes)), model.Probed{Addrs: map[netip.Addr]bool{}, Ports: ports[:]}
	for name, node := range nodes {
		var addrs probe.Node
		for _, addr := range node.Addresses {
			if first := &addrs[model.FamilyOf(addr)]; !first.IsValid() {
				*first = addr
				probed.Addrs[addr] = true
			}
		}
		at[name] = addrs
	}
	w.prober.SetNodes(at)
	w.deliver(model.Change{Probed: &probed})
}

// deliver queues a change for the proxy.
func (w *reachabilityMonitor) deliver(change model.Change) {
	w.mutex.Lock()
	w.waiting = w.waiting.Merge(change)
	w.mutex.Unlock()
	w.addressesChanged.Notify()
}

// nodesChanged receives changed Nodes of a manifest directory: they have addresses.
func (w *reachabilityMonitor) nodesChanged(changed map[string]*model.Node) {
	if len(changed) == 0 {
		return
	}
	for name, node := range changed {
		if w.nodes[name] = node; node == nil {
			delete(w.nodes, name)
		}
	}
	w.proxiesAt(w.nodes)
}

// OnScan is called after each scan of conntrack.
func (w *reachabilityMonitor) OnScan(scan probe.Scan, err error) {
	w.recorder.Set(metrics.UnrepliedFlows, scan.Unreplied)
	if err != nil {
		w.log.Warn("failed to list unreplied connections; retrying", "error", err)
	}
}

// OnActions logs the decisions and queues them for the proxy.
func (w *reachabilityMonitor) OnActions(family model.Family, actions *reachability.Actions) {
	for _, outcome := range actions.Concluded {
		w.recorder.Add(metrics.NodeSuspicions, 1, family.String(), string(outcome))
	}
	for _, node := range actions.Ejected {
		w.log.Warn("a node does not answer this one", "unreachableNode", node, "family", family, "demoted", w.avoid)
	}
	for _, back := range actions.Restored {
		if back.Removed {
			w.log.Info("stopped probing an unreachable node, which was removed or has a new address", "unreachableNode", back.Node, "family", family)
			continue
		}
		w.log.Info("a node answers again", "unreachableNode", back.Node, "family", family,
			"after", time.Since(back.Since).Round(time.Millisecond))
	}
	if actions.Isolated {
		w.log.Warn("this node is isolated: no other node answers it; none is considered unreachable", "family", family)
	}
	if actions.IsolationEnded {
		w.log.Info("this node is no longer isolated: other nodes answer it again", "family", family)
	}
}

// OnStatus exports the state as metrics, and demotes the unreachable nodes.
func (w *reachabilityMonitor) OnStatus(known probe.Status) {
	for family, in := range known.Families {
		w.recorder.Set(metrics.ReachabilityTargets, in.WithBaseline-len(in.Ejected), family.String(), metrics.StateReachable)
		w.recorder.Set(metrics.ReachabilityTargets, len(in.Ejected), family.String(), metrics.StateUnreachable)
		w.recorder.Set(metrics.ReachabilityTargets, in.WithoutBaseline, family.String(), metrics.StateWithoutBaseline)
	}
	if !w.avoid {
		return
	}
	demotion := map[model.DemotionKey]*model.Demotion{}
	for _, node := range known.Ejected {
		demotion[model.DemotionKey{Node: node.Node, Reason: model.Unreachable}] = &model.Demotion{
			Reason: model.Unreachable, Since: node.Since, Families: node.Families, IsLasting: time.Since(node.Since) >= noSessionSurvives,
		}
	}
	change := maps.Clone(demotion)
	for key, before := range w.avoided {
		switch now := demotion[key]; {
		case now == nil:
			change[key] = nil
		case reflect.DeepEqual(before, now):
			delete(change, key)
		}
	}
	if w.avoided = demotion; len(change) > 0 {
		w.deliver(model.Change{Demotions: change})
	}
}

// summary returns the state of unreachable nodes for the page /summary.
func (w *reachabilityMonitor) summary() *status.Reachability {
	known := w.prober.Status()
	s := &status.Reachability{Demotes: w.avoid, Unreachable: []status.UnreachableNode{}, Families: map[string]status.FamilyReachability{}}
	for family, in := range known.Families {
		s.Families[family.String()] = status.FamilyReachability{
			IsolatedSince: in.IsolatedSince, WithBaseline: in.WithBaseline - len(in.Ejected), WithoutBaseline: in.WithoutBaseline,
			HasNoControl: in.HasNoControl,
		}
	}
	for _, node := range known.Ejected {
		unreachable := status.UnreachableNode{Node: node.Node, Since: node.Since, LastReply: node.LastReply, NextDial: node.NextProbe}
		for _, family := range node.Families {
			unreachable.Families = append(unreachable.Families, family.String())
		}
		s.Unreachable = append(s.Unreachable, unreachable)
	}
	return s
}
