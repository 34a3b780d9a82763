package daemon

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/probe"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// UnreachableNodes is what is done about nodes that do not answer this one.
type UnreachableNodes string

// The choices; the zero value is IgnoreUnreachable. The flag's default is AvoidUnreachable: in an hour of the suites
// with WatchUnreachable no verdict was wrong.
const (
	AvoidUnreachable  UnreachableNodes = "avoid"  // their endpoints are tried last
	WatchUnreachable  UnreachableNodes = "watch"  // they are logged and counted
	IgnoreUnreachable UnreachableNodes = "ignore" // nobody is dialled
)

// dials reports whether nodes are dialled.
func (u UnreachableNodes) dials() bool { return u == AvoidUnreachable || u == WatchUnreachable }

// watch finds out which nodes do not answer this one.
type watch struct {
	*common
	prober *probe.Prober
	avoid  bool
	port   uint16 // of /healthz on all nodes

	mutex   sync.Mutex
	waiting model.Change // what the proxy has not got yet
	news    wake.Signal  // holds a signal while there is something waiting
	nodes   map[string]*model.Node
}

// newWatch returns a watch, and the part that it is; nil if the options ask for none.
func newWatch(c *common, shared, table conntrack.Table, of *owners.Reader, to *completion) (*watch, part) {
	if !c.options.UnreachableNodes.dials() {
		return nil, part{}
	}
	w := &watch{
		common: c, avoid: c.options.UnreachableNodes == AvoidUnreachable, news: wake.NewSignal(), nodes: map[string]*model.Node{},
	}
	if c.options.Manifests == "" && c.options.ProxyService.Name == "" {
		w.avoid = false
		c.log.Warn("nodes that stop answering go unnoticed: without --proxy-service their addresses are unknown")
	}
	if healthz, err := netip.ParseAddrPort(c.options.Settings.HealthzBindAddress); err == nil {
		w.port = healthz.Port()
	}
	served := probe.NewServed()
	w.prober = probe.New(probe.Options{
		Own: c.options.Node, Table: shared, AtOnce: table, Owners: of, Served: served, Tell: w,
	})
	return w, part{
		reader:  served,
		run:     unfailing(func(ctx context.Context) { w.run(ctx, to) }),
		summary: func(s *status.Summary) { s.Reachability = w.summary() },
	}
}

// run dials and decides until ctx ends, and tells the proxy what to avoid.
func (w *watch) run(ctx context.Context, to *completion) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { w.prober.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.news:
		}
		w.mutex.Lock()
		change := w.waiting
		w.waiting = model.Change{}
		w.mutex.Unlock()
		to.deliverLater(ctx, change)
	}
}

// proxiesAt takes in where the proxies on all nodes are.
func (w *watch) proxiesAt(nodes map[string]*model.Node) {
	places := make(map[string]reachability.Place, len(nodes))
	for name, node := range nodes {
		if len(node.Addresses) > 0 && w.port != 0 {
			addr := netip.AddrPortFrom(node.Addresses[0], w.port)
			places[name] = reachability.Place{Addr: addr, Zone: node.Labels[string(policy.Zone)]}
		}
	}
	w.prober.Nodes(places)
}

// nodesChanged takes in Nodes of a folder: they have addresses.
func (w *watch) nodesChanged(changed map[string]*model.Node) {
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

// Looked is called after each look at conntrack.
func (w *watch) Looked(look probe.Look, err error) {
	w.recorder.Set(metrics.UnansweredFlows, look.Unanswered)
	if err != nil {
		w.log.Warn("could not look at unanswered connections; trying again", "error", err)
	}
}

// Decided logs what was decided, and has it handed over.
func (w *watch) Decided(orders *reachability.Orders) {
	for _, outcome := range orders.Ended {
		w.recorder.Add(metrics.NodeSuspicions, 1, string(outcome))
	}
	now, change := time.Now(), map[model.Against]*model.Avoid{}
	for _, node := range orders.Out {
		change[model.Against{Node: node, Why: model.Unreachable}] = &model.Avoid{Why: model.Unreachable, Since: now}
		w.log.Warn("a node does not answer this one", "unreachable-node", node, "avoided", w.avoid)
	}
	for _, back := range orders.Back {
		change[model.Against{Node: back.Node, Why: model.Unreachable}] = nil
		if back.Gone {
			w.log.Info("a node that did not answer is not dialled any more", "unreachable-node", back.Node)
			continue
		}
		w.log.Info("a node answers again", "unreachable-node", back.Node, "after", now.Sub(back.Since).Round(time.Millisecond))
	}
	if orders.CutOff {
		w.log.Warn("no other node answers this one: no node is judged")
	}
	if orders.Reconnected {
		w.log.Info("other nodes answer this one again")
	}
	if !w.avoid || len(change) == 0 {
		return
	}
	w.mutex.Lock()
	w.waiting = w.waiting.Then(model.Change{Avoid: change})
	w.mutex.Unlock()
	w.news.Send()
}

// Known counts what is known.
func (w *watch) Known(known reachability.Status) {
	w.recorder.Set(metrics.WatchedNodes, known.Answering-len(known.Unreachable), metrics.AnswersYes)
	w.recorder.Set(metrics.WatchedNodes, len(known.Unreachable), metrics.AnswersNo)
	w.recorder.Set(metrics.WatchedNodes, known.Never, metrics.AnswersNever)
}

// summary is what the page /summary says about nodes that do not answer.
func (w *watch) summary() *status.Reachability {
	known := w.prober.Status()
	s := &status.Reachability{
		Avoided: w.avoid, CutOffSince: known.CutOffSince, Answering: known.Answering, NeverAnswered: known.Never,
		Unreachable: []status.UnreachableNode{},
	}
	for _, node := range known.Unreachable {
		s.Unreachable = append(s.Unreachable, status.UnreachableNode{
			Node: node.Node, Since: node.Since, LastAnswer: node.LastAnswer, NextDial: node.NextDial,
		})
	}
	return s
}
