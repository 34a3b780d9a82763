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

// UnreachableNodes selects how nodes that do not reply to this one are treated.
type UnreachableNodes string

// The zero value is IgnoreUnreachable. The flag's default is DemoteUnreachable: in an hour of the test suites with
// ReportUnreachable there was no false detection.
const (
	DemoteUnreachable UnreachableNodes = "enforce" // their endpoints are tried last
	ReportUnreachable UnreachableNodes = "observe" // they are logged and counted
	IgnoreUnreachable UnreachableNodes = "off"     // no node is probed
)

// udpFlowRetention is how long UDP flows to an unreachable node are kept. The kernel itself, and every NAT on the
// path, drops a flow after two minutes without a packet (nf_conntrack_udp_timeout_stream).
const udpFlowRetention = 2 * time.Minute

// probesNodes reports whether nodes are probed.
func (u UnreachableNodes) probesNodes() bool { return u == DemoteUnreachable || u == ReportUnreachable }

// reachabilityMonitor detects which nodes do not reply to this one.
type reachabilityMonitor struct {
	*common
	prober  *probe.Prober
	demotes bool
	port    uint16 // of /healthz on all nodes

	mutex         sync.Mutex
	pending       model.Change  // changes that are not delivered to the proxy yet
	pendingSignal notify.Signal // holds a signal while pending is not empty
	nodes         map[string]*model.Node
	// demotions are those that the proxy has, or soon will have. Only the prober's goroutine uses it.
	demotions map[model.DemotionKey]*model.Demotion
}

// newReachabilityMonitor returns the monitor and its component; nil and an empty component if the options do not enable
// it.
func newReachabilityMonitor(c *common, dumps, table conntrack.Table, index *serviceindex.Index, isLocal selection.IsLocal,
	barrier *startupBarrier) (*reachabilityMonitor, component) {
	if !c.options.UnreachableNodes.probesNodes() {
		return nil, component{}
	}
	m := &reachabilityMonitor{
		common: c, demotes: c.options.UnreachableNodes == DemoteUnreachable, pendingSignal: notify.NewSignal(), nodes: map[string]*model.Node{},
	}
	if c.options.Manifests == "" && c.options.ProxyService.Name == "" {
		m.demotes = false
		c.log.Warn("cannot detect unreachable nodes: without --proxy-service their addresses are unknown")
	}
	if healthz, err := netip.ParseAddrPort(c.options.Settings.HealthzBindAddress); err == nil {
		m.port = healthz.Port()
	}
	m.prober = probe.New(probe.Options{
		Self: c.options.Node, HealthzPort: m.port, Table: dumps, Unthrottled: table, Index: index, Observer: m, IsLocal: isLocal,
	})
	return m, component{
		run:     unfailing(func(ctx context.Context) { m.run(ctx, barrier) }),
		summary: func(s *status.Summary) { s.Reachability = m.summary() },
	}
}

// run probes and decides until ctx ends, and delivers the changes to the proxy.
func (m *reachabilityMonitor) run(ctx context.Context, barrier *startupBarrier) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { m.prober.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.pendingSignal:
		}
		m.mutex.Lock()
		change := m.pending
		m.pending = model.Change{}
		m.mutex.Unlock()
		barrier.deliverAsync(ctx, change)
	}
}

// setProxyNodes receives the nodes on which proxies run.
func (m *reachabilityMonitor) setProxyNodes(nodes map[string]*model.Node) {
	if m.port == 0 {
		return
	}
	ports := reachability.Ports(m.port)
	probeNodes, targets := make(map[string]probe.Node, len(nodes)), model.ProbeTargets{Addrs: map[netip.Addr]bool{}, Ports: ports[:]}
	for name, node := range nodes {
		var addrs probe.Node
		for _, addr := range node.Addresses {
			if first := &addrs[model.FamilyOf(addr)]; !first.IsValid() {
				*first = addr
				targets.Addrs[addr] = true
			}
		}
		probeNodes[name] = addrs
	}
	m.prober.SetNodes(probeNodes)
	m.deliver(model.Change{ProbeTargets: &targets})
}

// deliver queues a change for the proxy.
func (m *reachabilityMonitor) deliver(change model.Change) {
	m.mutex.Lock()
	m.pending = m.pending.Merge(change)
	m.mutex.Unlock()
	m.pendingSignal.Notify()
}

// nodesChanged receives changed Nodes of a manifest directory, which include their addresses.
func (m *reachabilityMonitor) nodesChanged(changed map[string]*model.Node) {
	if len(changed) == 0 {
		return
	}
	for name, node := range changed {
		if m.nodes[name] = node; node == nil {
			delete(m.nodes, name)
		}
	}
	m.setProxyNodes(m.nodes)
}

// OnScan is called after each scan of conntrack.
func (m *reachabilityMonitor) OnScan(scan probe.Scan, err error) {
	m.recorder.Set(metrics.UnrepliedFlows, scan.Unreplied)
	if err != nil {
		m.log.Warn("failed to list unreplied connections; retrying", "error", err)
	}
}

// OnActions logs the decisions and queues them for the proxy.
func (m *reachabilityMonitor) OnActions(family model.Family, actions *reachability.Actions) {
	for _, outcome := range actions.Concluded {
		m.recorder.Add(metrics.NodeSuspicions, 1, family.String(), string(outcome))
	}
	for _, node := range actions.Ejected {
		m.log.Warn("node is unreachable from this node", "unreachableNode", node, "family", family, "demoted", m.demotes)
	}
	for _, restored := range actions.Restored {
		if restored.Removed {
			m.log.Info("stopped probing an unreachable node, which was removed or has a new address", "unreachableNode", restored.Node, "family",
				family)
			continue
		}
		m.log.Info("node is reachable again", "unreachableNode", restored.Node, "family", family,
			"after", time.Since(restored.Since).Round(time.Millisecond))
	}
	if actions.Isolated {
		m.log.Warn("this node is isolated: no other node replies to its probes, so none is considered unreachable", "family", family)
	}
	if actions.IsolationEnded {
		m.log.Info("this node is no longer isolated: other nodes reply again", "family", family)
	}
}

// OnStatus exports the state as metrics, and demotes the unreachable nodes.
func (m *reachabilityMonitor) OnStatus(current probe.Status) {
	for family, state := range current.Families {
		m.recorder.Set(metrics.ReachabilityTargets, state.WithBaseline-len(state.Ejected), family.String(), metrics.StateReachable)
		m.recorder.Set(metrics.ReachabilityTargets, len(state.Ejected), family.String(), metrics.StateUnreachable)
		m.recorder.Set(metrics.ReachabilityTargets, state.WithoutBaseline, family.String(), metrics.StateWithoutBaseline)
	}
	if !m.demotes {
		return
	}
	demotions := map[model.DemotionKey]*model.Demotion{}
	for _, node := range current.Ejected {
		demotions[model.DemotionKey{Node: node.Node, Reason: model.Unreachable}] = &model.Demotion{
			Reason: model.Unreachable, Since: node.Since, Families: node.Families, IsLasting: time.Since(node.Since) >= udpFlowRetention,
		}
	}
	change := maps.Clone(demotions)
	for key, before := range m.demotions {
		switch after := demotions[key]; {
		case after == nil:
			change[key] = nil
		case reflect.DeepEqual(before, after):
			delete(change, key)
		}
	}
	if m.demotions = demotions; len(change) > 0 {
		m.deliver(model.Change{Demotions: change})
	}
}

// summary returns the state of unreachable nodes for the page /summary.
func (m *reachabilityMonitor) summary() *status.Reachability {
	current := m.prober.Status()
	s := &status.Reachability{Demotes: m.demotes, Unreachable: []status.UnreachableNode{}, Families: map[string]status.FamilyReachability{}}
	for family, state := range current.Families {
		s.Families[family.String()] = status.FamilyReachability{
			IsolatedSince: state.IsolatedSince, WithBaseline: state.WithBaseline - len(state.Ejected), WithoutBaseline: state.WithoutBaseline,
			HasNoControl: state.HasNoControl,
		}
	}
	for _, node := range current.Ejected {
		unreachable := status.UnreachableNode{Node: node.Node, Since: node.Since, LastReply: node.LastReply, NextDial: node.NextProbe}
		for _, family := range node.Families {
			unreachable.Families = append(unreachable.Families, family.String())
		}
		s.Unreachable = append(s.Unreachable, unreachable)
	}
	return s
}
