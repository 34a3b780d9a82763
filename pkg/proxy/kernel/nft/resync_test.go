//go:build linux

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// layout is the input of the static chains.
type layout struct {
	config ruleset.Config
	state  ruleset.NodeState
}

// everyLayout returns every way of distinguishing pods from others, and all other settings and states of the cluster on
// which the static chains depend.
func everyLayout() map[string]layout {
	addrs4, addrs6 := addressesOf(model.IPv4), addressesOf(model.IPv6)
	prefixes := func(texts ...string) []netip.Prefix {
		var list []netip.Prefix
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	detector := func(traffic ruleset.LocalTraffic) layout {
		return layout{config: ruleset.Config{LocalTraffic: traffic}}
	}
	nodeAddrs := []netip.Addr{addrs4.node, addrs4.node.Next(), addrs6.node}
	primary := model.NodePortAddresses{Primary: true}
	inPrefixes := model.NodePortAddresses{Prefixes: prefixes("172.16.0.0/12", "192.168.0.0/16")}
	localhost := model.NodePortAddresses{Localhost: true, Prefixes: prefixes("127.0.0.0/8")}
	serviceCIDRs := prefixes("10.96.0.0/12", "10.128.0.0/16", "192.0.2.8/32", "fd00:10:96::/108", "fd00:10:97::/112")
	return map[string]layout{
		"no settings":                        {},
		"detector ClusterCIDR":               detector(ruleset.LocalTraffic{Prefixes: []netip.Prefix{addrs4.cluster, addrs6.cluster}}),
		"detector ClusterCIDR of one family": detector(ruleset.LocalTraffic{Prefixes: []netip.Prefix{addrs4.cluster}}),
		"detector NodeCIDR": detector(
			ruleset.LocalTraffic{Prefixes: prefixes("10.244.1.128/25", "fd00:10:244:2::/63"), PodCIDRs: true}),
		"detector NodeCIDR before the node is known":    detector(ruleset.LocalTraffic{PodCIDRs: true}),
		"detector BridgeInterface":                      detector(ruleset.LocalTraffic{Interface: "cbr0"}),
		"detector BridgeInterface with a long name":     detector(ruleset.LocalTraffic{Interface: "fifteen-letters"}),
		"detector InterfaceNamePrefix":                  detector(ruleset.LocalTraffic{InterfacePrefix: "veth"}),
		"all connections to ClusterIPs are masqueraded": {config: ruleset.Config{MasqueradeAll: true}},
		"node ports on primary addresses": {
			ruleset.Config{NodePorts: primary}, ruleset.NodeState{NodePortAddrs: nodeAddrs}},
		"node ports on primary addresses, without any": {config: ruleset.Config{NodePorts: primary}},
		"node ports in prefixes of one family": {
			ruleset.Config{NodePorts: inPrefixes}, ruleset.NodeState{NodePortAddrs: nodeAddrs[:2]}},
		"node ports on loopback are rejected":         {config: ruleset.Config{NodePorts: model.NodePortAddresses{Localhost: true}}},
		"node ports on loopback are served over IPv4": {config: ruleset.Config{NodePorts: localhost}},
		"ranges of ClusterIPs":                        {state: ruleset.NodeState{ServiceCIDRs: serviceCIDRs}},
		"all settings": {
			ruleset.Config{NodePorts: primary, MasqueradeAll: true, LocalTraffic: ruleset.LocalTraffic{InterfacePrefix: "fourteenletter"}},
			ruleset.NodeState{NodePortAddrs: nodeAddrs, ServiceCIDRs: serviceCIDRs}},
	}
}

// TestEveryLayoutMatchesItsText programs Services as the proxy does, and loads the text of the same tables
// with nft: Services of every shape for the layouts without and with all settings, and for others those whose chains
// depend on the layout.
func TestEveryLayoutMatchesItsText(t *testing.T) {
	for name, layout := range everyLayout() {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			batch := layout.batchOf(splitShapes, nil)
			if slices.Contains([]string{"no settings", "all settings"}, name) {
				batch = layout.batch(nil)
			}
			commit(t, dial(t, namespace, Options{}), batch)
			checkListed(t, namespace, batch, model.Families...)
		})
	}
}

// batch returns the proxy's first commit, with a Service of every shape.
func (l layout) batch(found map[model.Family]ruleset.Objects) ruleset.Batch {
	return l.batchOf(everyShape, found)
}

// batchOf returns the same with Services of these shapes.
func (l layout) batchOf(shapes func(model.Family) []shape, found map[model.Family]ruleset.Objects) ruleset.Batch {
	config := l.config
	config.Families = model.Families
	var services []ruleset.Service
	for _, family := range model.Families {
		services = append(services, servicesOf(family, shapes(family))...)
	}
	return resync(config, services, l.state, found).Batch
}

// resync returns the plan of a full sync.
func resync(
	config ruleset.Config, services []ruleset.Service, state ruleset.NodeState, found map[model.Family]ruleset.Objects,
) *ruleset.Plan {
	sync := ruleset.NewFullSync(config, found)
	sync.Add(services)
	_, plan := sync.Finish(state)
	return plan
}

// A full sync finds the tables as the previous one left them.
func TestWritingTheSameAgainChangesNothing(t *testing.T) {
	namespace := netns.New(t)
	c := dialOwned(t, namespace)
	layout := everyLayout()["all settings"]
	commit(t, c, layout.batch(nil))
	before := sortedJSON(t, namespace)
	found := map[model.Family]ruleset.Objects{}
	for _, family := range model.Families {
		found[family] = objects(t, c, family)
	}
	commit(t, c, layout.batch(found))
	if diff := cmp.Diff(before, sortedJSON(t, namespace)); diff != "" {
		t.Errorf("the second batch changed something (-before +after):\n%s", diff)
	}
}

// A batch that finds other rules replaces all of them by its own.
func TestOneLayoutReplacesAnother(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, everyLayout()["all settings"].batch(nil))
	for _, name := range []string{"detector BridgeInterface", "node ports in prefixes of one family", "no settings"} {
		found := map[model.Family]ruleset.Objects{}
		for _, family := range model.Families {
			found[family] = objects(t, c, family)
		}
		commit(t, c, everyLayout()[name].batch(found))
		fresh := netns.New(t)
		commit(t, dial(t, fresh, Options{}), everyLayout()[name].batch(nil))
		if diff := cmp.Diff(sortedJSON(t, fresh), sortedJSON(t, namespace)); diff != "" {
			t.Errorf("%s: the result differs from that in an empty kernel (-empty +after another layout):\n%s", name, diff)
		}
	}
}

// The tests above cover all kinds of chains: in every layout the chains that depend on it, and in the layouts without
// and with all settings all others too.
func TestTheShapesCoverEveryKindOfChain(t *testing.T) {
	split := []string{
		"refuse: 2", "lb-0-local-0: 2", "lb-0-local-1: 2", "lb-2-local-0: 2", "lb-2-local-1: 2", "nodeport-sticky-10800-1: 8", "sticky-port: 2",
	}
	others := []string{"lb-1: 1", "lb-2: 1", "lb-70: 1", "lb-70-local-11: 2", "sticky-10800-0: 8", "nodeport-sticky-draw: 2", "numbered: 2"}
	checkChains(t, layout{}.batchOf(splitShapes, nil), split)
	checkChains(t, layout{}.batch(nil), append(split, others...))
}

// checkChains checks that a batch gives chains the right number of rules, in both families.
func checkChains(t *testing.T, batch ruleset.Batch, want []string) {
	t.Helper()
	var chains []string
	for _, op := range batch.Ops {
		if object, ok := op.Object.(ruleset.RulesObject); ok {
			chains = append(chains, fmt.Sprintf("%s %s: %d", op.Family, object.Chain.Name, len(object.Chain.Rules)))
		}
	}
	for _, chain := range want {
		for _, family := range model.Families {
			if want := fmt.Sprintf("%s %s", family, chain); !slices.Contains(chains, want) {
				t.Errorf("no chain with this number of rules: %s; got\n%s", want, strings.Join(chains, "\n"))
			}
		}
	}
}
