//go:build linux

package probe

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Node is the address at which a node is probed, by family. An invalid address means that there is none.
type Node [2]netip.Addr

// Prober scans conntrack, sends probes, and reports the decisions of its detectors.
type Prober struct {
	Options
	unresolvedNeighbours func() (map[netip.Addr]bool, error)
	dial                 func(ctx context.Context, addr netip.AddrPort, timeout time.Duration) (reachability.ProbeResult, time.Duration)

	mutex     sync.Mutex
	detectors map[model.Family]*reachability.Detector
	nodes     map[string]Node
	servers   []netip.AddrPort
	changed   notify.Signal // signals that an event was reported to a detector

	// listed are the snapshots with which the connections of suspected or ejected nodes were listed. Only Run's goroutine
	// uses it.
	listed map[model.Family]map[string]*serviceindex.Snapshot
}

// Observer receives events. One goroutine calls OnScan, another one the other methods.
type Observer interface {
	// OnScan is called after each scan.
	OnScan(scan Scan, err error)
	// OnActions is called after each decision.
	OnActions(family model.Family, actions *reachability.Actions)
	// OnStatus is called with the current status after each decision, and every statusInterval.
	OnStatus(status Status)
}

// Options configure a Prober.
type Options struct {
	Self        string              // the name of this node
	HealthzPort uint16              // port of /healthz on all nodes
	Table       conntrack.Table     // with throttled dumps
	Unthrottled conntrack.Table     // the same table without throttling
	Index       *serviceindex.Index // gives the node of each endpoint
	Observer    Observer
	IsLocal     selection.IsLocal // reports whether an address is local to this node
}

// New returns a Prober without targets.
func New(options Options) *Prober {
	p := &Prober{
		Options: options, dial: Dial, unresolvedNeighbours: interfaces.UnresolvedNeighbours, changed: notify.NewSignal(),
		detectors: map[model.Family]*reachability.Detector{}, listed: map[model.Family]map[string]*serviceindex.Snapshot{},
	}
	budget := reachability.NewBudget()
	for _, family := range model.Families {
		p.detectors[family] = reachability.NewDetector(options.Self, options.HealthzPort, budget)
		p.listed[family] = map[string]*serviceindex.Snapshot{}
	}
	return p
}

// SetNodes sets the addresses at which other nodes are probed.
func (p *Prober) SetNodes(nodes map[string]Node) {
	p.update(func() { p.nodes = nodes; p.updateTargets() })
}

// SetAPIServers sets the addresses of API servers.
func (p *Prober) SetAPIServers(servers []netip.AddrPort) {
	p.update(func() { p.servers = servers; p.updateTargets() })
}

// Status describes the state of all nodes.
type Status struct {
	// Ejected are the nodes that do not reply, by name.
	Ejected []Ejected
	// Families is the state of the detector of each family.
	Families map[model.Family]reachability.Status
}

// Ejected is a node that does not reply in some families. If it is ejected in both, Since and LastReply are those of
// the later ejection: since then it has not replied at all.
type Ejected struct {
	reachability.EjectedNode
	Families []model.Family
}

// Status returns the current status.
func (p *Prober) Status() Status {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	s := Status{Families: map[model.Family]reachability.Status{}}
	byName := map[string]Ejected{}
	for _, family := range model.Families {
		status := p.detectors[family].Status()
		s.Families[family] = status
		for _, node := range status.Ejected {
			ejected := byName[node.Node]
			if ejected.Since.Before(node.Since) {
				ejected.EjectedNode = node
			}
			for _, requested := range model.Families {
				if p.probedFamily(node.Node, requested) == family {
					ejected.Families = append(ejected.Families, requested)
				}
			}
			byName[node.Node] = ejected
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s.Ejected = append(s.Ejected, byName[name])
	}
	return s
}

// probedFamily returns the family in which a node is probed for connections of the given family. It is the other family
// if the node has replied there, and has no address in the given family or never replied in it.
func (p *Prober) probedFamily(name string, family model.Family) model.Family {
	if other := model.IPv4 + model.IPv6 - family; !p.detectors[family].HasReplied(name) && p.detectors[other].HasReplied(name) {
		return other
	}
	return family
}

// statusInterval is how often OnStatus is called while there are no decisions.
const statusInterval = 5 * time.Second

// Run scans and probes until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.scanLoop(ctx) })
	stepTimer, statusTicker := time.NewTimer(0), time.NewTicker(statusInterval)
	defer stepTimer.Stop()
	defer statusTicker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-statusTicker.C:
			p.Observer.OnStatus(p.Status())
		case <-stepTimer.C:
		}
		var due time.Time
		for _, family := range model.Families {
			actions := p.step(family)
			p.start(ctx, family, actions, &running)
			if due.IsZero() || actions.NextStep.Before(due) {
				due = actions.NextStep
			}
		}
		stepTimer.Reset(time.Until(due))
	}
}

// update changes the state of the detectors or their targets, and notifies Run.
func (p *Prober) update(change func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	change()
	p.changed.Notify()
}

// reportScan passes each detector the nodes that are probed in its family. The caller must hold the mutex.
func (p *Prober) reportScan(scan Scan) {
	nodes := map[model.Family][]string{}
	for to, entries := range scan.unrepliedEntries {
		probed := p.probedFamily(to.node, to.family)
		nodes[probed] = append(nodes[probed], slices.Repeat([]string{to.node}, len(entries))...)
	}
	if len(scan.unresolved) > 0 {
		for name, node := range p.nodes {
			for family, addr := range node {
				if scan.unresolved[addr] {
					nodes[model.Family(family)] = append(nodes[model.Family(family)], name)
				}
			}
		}
	}
	for family, detector := range p.detectors {
		detector.ReportUnreplied(nodes[family])
	}
}

func (p *Prober) step(family model.Family) reachability.Actions {
	p.mutex.Lock()
	detector := p.detectors[family]
	actions := detector.Step(time.Now())
	maps.DeleteFunc(p.listed[family], func(name string, _ *serviceindex.Snapshot) bool { return !detector.IsActive(name) })
	p.mutex.Unlock()
	if len(actions.Ejected)+len(actions.Restored)+len(actions.Concluded) > 0 || actions.Isolated || actions.IsolationEnded {
		p.Observer.OnActions(family, &actions)
		p.Observer.OnStatus(p.Status())
	}
	return actions
}

// start starts the probes and lists that a detector requests.
func (p *Prober) start(ctx context.Context, family model.Family, actions reachability.Actions, running *sync.WaitGroup) {
	detector := p.detectors[family]
	for _, probe := range actions.Probes {
		running.Go(func() {
			result, rtt := p.dial(ctx, probe.Addr, probe.Timeout)
			if isLocal, err := p.IsLocal(probe.Addr.Addr()); isLocal || err != nil {
				result = reachability.NoReply // the address is now local, such as a virtual IP that this node took over
			}
			p.update(func() { detector.ReportProbe(time.Now(), probe.ID, result, rtt) })
		})
	}
	if names := actions.ListReplied; len(names) > 0 {
		previous, current := p.snapshots(family, names)
		running.Go(func() {
			replied, nextFlows, err := p.replied(ctx, previous, current)
			p.update(func() {
				detector.ReportReplied(time.Now(), names, p.filterProbed(replied, family), p.filterProbed(nextFlows, family), err == nil)
			})
		})
	}
}

// filterProbed returns the connections whose nodes are probed in a family. The caller must hold the mutex.
func (p *Prober) filterProbed(flows []reachability.Flow, family model.Family) []reachability.Flow {
	return slices.DeleteFunc(flows, func(flow reachability.Flow) bool {
		return p.probedFamily(flow.Node, model.FamilyOf(flow.Endpoint.Addr())) != family
	})
}

// snapshots returns the snapshot with which each node's connections were last listed, and the current one. Suspected
// nodes keep the snapshot of their first list.
func (p *Prober) snapshots(family model.Family, names []string) (previous map[string]*serviceindex.Snapshot,
	current *serviceindex.Snapshot) {
	p.mutex.Lock()
	isEjected := p.detectors[family].IsEjected
	p.mutex.Unlock()
	current, previous = p.Index.Snapshot(), make(map[string]*serviceindex.Snapshot, len(names))
	listed := p.listed[family]
	for _, name := range names {
		if previous[name] = cmp.Or(listed[name], current); listed[name] == nil || isEjected(name) {
			listed[name] = current
		}
	}
	return previous, current
}

// Scan intervals: even a dump of an empty table takes the kernel some milliseconds. After idleAfter without an
// unreplied connection, scans are half as frequent. If a scan takes long, the table throttles the next ones.
const (
	scanInterval     = 500 * time.Millisecond
	idleScanInterval = time.Second
	idleAfter        = time.Minute
)

func (p *Prober) scanLoop(ctx context.Context) {
	next, lastUnreplied := time.NewTimer(scanInterval), time.Now()
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		scan, err := p.scan(ctx)
		if ctx.Err() != nil {
			return
		}
		if p.Observer.OnScan(scan, err); scan.isListed {
			p.update(func() { p.reportScan(scan) })
		}
		if scan.Unreplied > 0 {
			lastUnreplied = time.Now()
		}
		if time.Since(lastUnreplied) < idleAfter {
			next.Reset(scanInterval)
		} else {
			next.Reset(idleScanInterval)
		}
	}
}

// updateTargets sets the nodes and API servers that the detectors may probe. It omits loopback and this node's own
// addresses, which would reply even without a network. The caller must hold the mutex.
func (p *Prober) updateTargets() {
	for family, detector := range p.detectors {
		addrs := map[string]netip.Addr{}
		for name, node := range p.nodes {
			if addr := node[family]; addr.IsValid() {
				addrs[name] = addr
			}
		}
		servers := slices.DeleteFunc(slices.Clone(p.servers), func(server netip.AddrPort) bool {
			isLocal, err := p.IsLocal(server.Addr())
			return model.FamilyOf(server.Addr()) != family || server.Addr().IsLoopback() || isLocal || err != nil
		})
		detector.SetNodes(time.Now(), addrs, servers)
	}
}
