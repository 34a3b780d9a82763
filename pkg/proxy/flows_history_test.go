//go:build linux

package proxy_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// openFlows is conntrack in memory: flows of UDP whose clients never stop sending. It is a reader, too, that knows what
// addresses mean.
type openFlows struct {
	conntrack.Table // asked for nothing else
	open            map[conntrack.Entry]bool
	ended           int
	sync            selection.Sync
}

func (o *openFlows) Dump(_ context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	for e := range o.open {
		if filter.Matches(&e) && !each(&e) {
			return 0, conntrack.ErrCutOff
		}
	}
	return 0, nil
}

func (o *openFlows) Delete(e *conntrack.Entry) (bool, error) {
	isThere := o.open[*e]
	if delete(o.open, *e); isThere {
		o.ended++
	}
	return isThere, nil
}

func (*openFlows) Digest([]selection.Decision) any { return nil }
func (*openFlows) Accept(model.ObjectName, any)    {}
func (o *openFlows) Synced(sync selection.Sync)    { o.sync = sync }

func (o *openFlows) isLocal(addr netip.Addr) (bool, error) {
	return slices.Contains(o.sync.LocalAddrs, addr), nil
}

// permitted is who may answer a frontend, and who else is an endpoint.
type permitted struct{ inside, outside, all []netip.AddrPort }

// permittedIn decides afresh who may answer which UDP frontend.
func permittedIn(s *story) map[model.Frontend]permitted {
	cluster := model.NewCluster(self)
	cluster.NodePorts = s.config.NodePorts // these decide which Service has an external IP that is the node's own address
	cluster.Apply(s.everything)
	found := map[model.Frontend]permitted{}
	for _, name := range cluster.ServiceNames() {
		for _, decision := range selection.NewPlanner(cluster).Decide(name, s.config.Families) {
			if decision.Port.Protocol != model.UDP {
				continue
			}
			anywhere, here := decision.Answering()
			lists := map[bool][]netip.AddrPort{false: anywhere, true: here}
			var all []netip.AddrPort
			for i := range decision.Endpoints {
				all = append(all, decision.Endpoints[i].Addr)
			}
			for _, owned := range decision.Owned {
				insideHere, outsideHere := decision.AnsweredHere(owned.Kind)
				found[owned.Frontend] = permitted{lists[insideHere], lists[outsideHere], all}
			}
		}
	}
	return found
}

// mayAnswer returns the endpoints that may answer a client.
func (o *openFlows) mayAnswer(of permitted, client netip.Addr) []netip.AddrPort {
	switch place, _ := o.sync.Scope.PlaceOf(client, o.isLocal); place {
	case selection.Inside:
		return of.inside
	case selection.Outside:
		return of.outside
	case selection.Uncertain:
	}
	return slices.Concat(of.inside, of.outside)
}

// isStale reports whether a flow may not go on.
func (o *openFlows) isStale(e *conntrack.Entry, all map[model.Frontend]permitted) bool {
	isTranslated := e.Status&conntrack.DestinationNAT != 0
	frontend := model.Frontend{Addr: e.Dialled().Addr(), Protocol: model.UDP, Port: e.Dialled().Port()}
	of, exists := all[frontend]
	if !exists {
		frontend.Addr = model.AnyAddr(model.FamilyOf(frontend.Addr))
		if of, exists = all[frontend]; !exists {
			return isTranslated
		}
		if isServed, _ := o.sync.Scope.ServesNodePorts(e.Dialled().Addr(), o.isLocal); !isServed {
			return isTranslated && (e.HasLabel(ruleset.TranslatedLabel) || !slices.Contains(of.all, e.Answerer()))
		}
	}
	if !isTranslated {
		return len(of.inside)+len(of.outside) > 0
	}
	return !slices.Contains(o.mayAnswer(of, e.Client().Addr()), e.Answerer())
}

// everyFrontend is a few of the UDP frontends that a history may make.
var everyFrontend = []netip.AddrPort{
	netip.MustParseAddrPort("10.96.0.1:53"), netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("[2001:db8::1]:53"),
}

// clients are one inside and one outside, and elsewhere is an address that serves no node ports, of each family.
var (
	clients = map[model.Family][]netip.Addr{
		model.IPv4: addrs("127.0.0.1", "198.51.100.9"), model.IPv6: addrs("::1", "2001:db8:9::9"),
	}
	elsewhere = map[model.Family]netip.Addr{model.IPv4: addrs("203.0.113.99")[0], model.IPv6: addrs("2001:db8:99::99")[0]}
)

// begin opens every flow that may begin now: to each endpoint that may answer, untranslated ones where there is no
// frontend, and, to each endpoint of a node port, one that another proxy translates at an address that does not serve it.
func (o *openFlows) begin(all map[model.Frontend]permitted) {
	for frontend, of := range all {
		family := model.FamilyOf(frontend.Addr)
		dialled := []netip.AddrPort{netip.AddrPortFrom(frontend.Addr, frontend.Port)}
		if frontend.IsNodePort() {
			dialled = nil
			for _, addr := range o.sync.LocalAddrs {
				_, isOthers := all[model.Frontend{Addr: addr, Protocol: model.UDP, Port: frontend.Port}]
				if isServed, _ := o.sync.Scope.ServesNodePorts(addr, o.isLocal); isServed && model.FamilyOf(addr) == family && !isOthers {
					dialled = append(dialled, netip.AddrPortFrom(addr, frontend.Port))
				}
			}
		}
		for _, client := range clients[family] {
			for _, to := range dialled {
				for _, answerer := range o.mayAnswer(of, client) {
					o.add(client, to, answerer, true)
				}
			}
			for _, answerer := range of.all {
				if frontend.IsNodePort() {
					o.add(client, netip.AddrPortFrom(elsewhere[family], frontend.Port), answerer, false)
				}
			}
		}
	}
	for _, to := range everyFrontend {
		if _, exists := all[model.Frontend{Addr: to.Addr(), Protocol: model.UDP, Port: to.Port()}]; !exists {
			for _, client := range clients[model.FamilyOf(to.Addr())] {
				o.add(client, to, to, false)
			}
		}
	}
}

func (o *openFlows) add(client netip.Addr, dialled, answerer netip.AddrPort, isOurs bool) {
	from := netip.AddrPortFrom(client, 1000)
	e := conntrack.Entry{
		Protocol: model.UDP, Original: conntrack.Tuple{Source: from, Destination: dialled},
		Reply: conntrack.Tuple{Source: answerer, Destination: from},
	}
	if dialled != answerer {
		e.Status = conntrack.DestinationNAT
	}
	if isOurs {
		e.Labels[ruleset.TranslatedLabel/8] = 1 << (ruleset.TranslatedLabel % 8)
	}
	o.open[e] = true
}

// TestNoHistoryLeavesAStaleFlow: whatever happened, no flow outlives the right of its endpoint to answer it, and none
// stays untranslated once an endpoint may answer. Proxies restart meanwhile.
func TestNoHistoryLeavesAStaleFlow(t *testing.T) {
	ended := 0
	for seed := range uint64(18) {
		synctest.Test(t, func(t *testing.T) { // looks rest
			ended += runFlowsHistory(t, seed)
		})
	}
	if ended == 0 {
		t.Error("no flow was ended: nothing was tested")
	}
}

// runFlowsHistory returns how many flows were ended.
func runFlowsHistory(t *testing.T, seed uint64) (ended int) {
	kernel, table := &memoryKernel{}, &openFlows{open: map[conntrack.Entry]bool{}}
	s := newStory(seed, kernel, kernel, table)
	reconciler := flows.NewReconciler(conntrack.NewLooks(table, nil), s.traffic, table.isLocal)
	for range 25 {
		s.goOn()
		if s.changes.random.IntN(10) == 0 {
			s.restart()
			reconciler = flows.NewReconciler(conntrack.NewLooks(table, nil), s.traffic, table.isLocal)
			// The tables say where new flows go, but not which other endpoints there are.
			maps.DeleteFunc(table.open, func(e conntrack.Entry, _ bool) bool { return e.Dialled().Addr() == elsewhere[e.Family()] })
		}
		mustSync(t, s.running)
		if _, err := reconciler.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := permittedIn(s)
		for e := range table.open {
			if table.isStale(&e, all) {
				t.Fatalf("seed %d: the flow %s goes on", seed, &e)
			}
		}
		table.begin(all)
	}
	return table.ended
}
