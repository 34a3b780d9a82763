package ruleset_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// rulesOf returns the text of each rule of a chain, in IPv4.
func rulesOf(chain ruleset.Chain) []string {
	lines := strings.Split(strings.TrimSuffix(chain.Text(model.IPv4), "\n"), "\n")
	var rules []string
	for _, line := range lines[1 : len(lines)-1] {
		rules = append(rules, strings.TrimSpace(line))
	}
	return rules
}

// withNumbers returns a Service as the mirror has it: with numbers.
func withNumbers(t testing.TB, service ruleset.Service) ruleset.Service {
	t.Helper()
	return start(t, service).mirror.Service(service.Name)
}

// stickyViews are the endpoints of the views with affinity, for clients inside and outside, of a ClusterIP and of all
// other frontends.
type stickyViews struct{ clusterIP, clusterIPOutside, others, othersOutside string }

// The values of a view: both endpoints, only the one on this node, only the one on the other node, none, or no
// affinity.
const (
	both, localOnly, remoteOnly, noEndpoints, withoutAffinity = "both", "local", "remote", "none", "no affinity"
)

// stickyViewsOf reads the views from the tables, as a packet does.
func stickyViewsOf(t *testing.T, tables *ruleset.Tables, port ruleset.Port) stickyViews {
	t.Helper()
	found := lookupsIn(t, tables, port.ID.Family)
	var views stickyViews
	for _, frontend := range port.Frontends {
		inside, outside := found.viewOf(frontend, false), found.viewOf(frontend, true)
		if !frontend.External {
			views.clusterIP, views.clusterIPOutside = inside, outside
			continue
		}
		if views.others != "" && (views.others != inside || views.othersOutside != outside) {
			t.Errorf("%+v: %s and %s, want %s and %s as for others", frontend, inside, outside, views.others, views.othersOutside)
		}
		views.others, views.othersOutside = inside, outside
	}
	return views
}

// viewOf returns the endpoints of a frontend for a kind of clients: two at most.
func (l lookups) viewOf(frontend ruleset.Frontend, outside bool) string {
	if !l.isSticky(frontend) {
		return withoutAffinity
	}
	port := l.portOf(frontend, outside)
	if port == ruleset.NoPort {
		return noEndpoints
	}
	var names []string
	for key, endpoint := range l.numbered {
		if _, isEndpoint, ok := ruleset.NumberKind(key.Number); ok && isEndpoint && ruleset.PortOf(key.Number) == port {
			last := endpoint.Addr().AsSlice()
			names = append(names, map[byte]string{1: localOnly, 2: remoteOnly}[last[len(last)-1]])
		}
	}
	if len(names) == 2 {
		return both
	}
	return strings.Join(names, " ")
}

// TestTheViewsOfSessionAffinity: a client's affinity is limited to the endpoints that its kind of client may use.
func TestTheViewsOfSessionAffinity(t *testing.T) {
	for name, test := range map[string]struct {
		internalLocal, externalLocal bool
		change                       func(*model.Service)
		pods                         []pod
		want                         stickyViews
		ports                        int // numbers of the port
	}{
		"one view for all frontends": {
			pods: slices.Concat(podsOnNode1(1), podsOnNode2(2)), want: stickyViews{both, both, both, both}, ports: 1,
		},
		"two views, selected by the client's origin": {
			externalLocal: true, pods: slices.Concat(podsOnNode1(1), podsOnNode2(2)), want: stickyViews{both, both, both, localOnly}, ports: 2,
		},
		"external clients have no endpoint on this node": {
			externalLocal: true, pods: podsOnNode2(2), want: stickyViews{remoteOnly, remoteOnly, remoteOnly, noEndpoints}, ports: 1,
		},
		"topology keys leave no endpoint for internal clients": {
			externalLocal: true, pods: podsOnNode1(1), change: func(s *model.Service) { s.Topology.Keys = noKeys },
			want: stickyViews{withoutAffinity, withoutAffinity, noEndpoints, localOnly}, ports: 1,
		},
		"the ClusterIP has only the local view": {
			internalLocal: true, pods: slices.Concat(podsOnNode1(1), podsOnNode2(2)), want: stickyViews{localOnly, localOnly, both, both}, ports: 2,
		},
		"the ClusterIP and external clients share the local view": {
			internalLocal: true, externalLocal: true, pods: slices.Concat(podsOnNode1(1), podsOnNode2(2)),
			want: stickyViews{localOnly, localOnly, both, localOnly}, ports: 2,
		},
		"the ClusterIP has no endpoint on this node": {
			internalLocal: true, pods: podsOnNode2(2), want: stickyViews{withoutAffinity, withoutAffinity, remoteOnly, remoteOnly}, ports: 1,
		},
		"only a ClusterIP with a Local policy: no cluster view": {
			internalLocal: true, pods: slices.Concat(podsOnNode1(1), podsOnNode2(2)),
			change: func(s *model.Service) { s.LoadBalancerIPs, s.ExternalIPs, s.Ports[0].NodePort = nil, nil, 0 },
			want:   stickyViews{clusterIP: localOnly, clusterIPOutside: localOnly}, ports: 1,
		},
		"no endpoint serves": {
			externalLocal: true, pods: podsOnNode2(2), change: func(s *model.Service) { s.Topology.Keys = noKeys },
			want: stickyViews{withoutAffinity, withoutAffinity, withoutAffinity, withoutAffinity},
		},
		"no endpoints": {internalLocal: true, externalLocal: true,
			want: stickyViews{withoutAffinity, withoutAffinity, withoutAffinity, withoutAffinity}},
		"no affinity": {
			externalLocal: true, pods: podsOnNode1(1), change: func(s *model.Service) { s.AffinityTimeout = 0 },
			want: stickyViews{withoutAffinity, withoutAffinity, withoutAffinity, withoutAffinity},
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := everyKind("web", 1)
			service.AffinityTimeout, service.InternalTrafficLocal, service.ExternalTrafficLocal = time.Hour, test.internalLocal, test.externalLocal
			if test.change != nil {
				test.change(&service)
			}
			r := start(t, desiredService(service, test.pods...))
			for _, port := range r.mirror.Service(service.Name).Ports {
				if diff := cmp.Diff(test.want, stickyViewsOf(t, &r.Tables, port), cmp.AllowUnexported(stickyViews{})); diff != "" {
					t.Errorf("views in %s (-want +got):\n%s", port.ID.Family, diff)
				}
				found := lookupsIn(t, &r.Tables, port.ID.Family)
				if got := len(found.portNumbers()); got != test.ports {
					t.Errorf("the port has %d numbers in %s, want %d", got, port.ID.Family, test.ports)
				}
				var clients []string
				for _, chain := range port.Chains(bothFamilies) {
					if strings.Contains(chain.Name, "sticky-") {
						clients = append(clients, chain.Name)
					}
				}
				if test.ports == 0 && len(clients) > 0 {
					t.Errorf("there are no numbers in %s, but affinity chains %q", port.ID.Family, clients)
				}
			}
			checkNumbers(t, r)
		})
	}
}

// TestNumberChainsMatchTheRandomSlotChains, so that a client is looked up in the view from which it gets its
// endpoint.
func TestNumberChainsMatchTheRandomSlotChains(t *testing.T) {
	for name, detector := range detectors {
		t.Run("pods detected "+name, func(t *testing.T) {
			config := ruleset.Config{LocalTraffic: detector.traffic}
			port := withNumbers(t, desiredService(withAffinityAndLocalPolicy(everyKind("web", 1)),
				slices.Concat(podsOnNode1(1), podsOnNode2(2))...)).Ports[0]
			dedicated := withNumbers(t, stickyBroad()).Ports[0]
			chains := slices.Concat(ruleset.StaticChains(model.IPv4, config, initialNodeState), port.Chains(config), dedicated.Chains(config))
			dependent := map[string]bool{}
			for _, chain := range chains {
				got := strings.Join(rulesOf(chain), "\n")
				picks := strings.Contains(got, "offset 4227858432") && strings.Contains(got, "offset 4244635648")
				if !picks && !strings.Contains(got, "sticky-outside") {
					continue
				}
				dependent[chain.Name] = true
				if !strings.Contains("\n"+got, "\n"+detector.outside+"meta priority set ") {
					t.Errorf("chain %s is\n%s\nand does not match %q", chain.Name, got, detector.outside)
				}
			}
			want := map[string]bool{
				"sticky-port": true, "nodeport-sticky-port": true, "lb-2-local-1": true, "sticky-lb-default/broad/tcp/http/external": true,
			}
			if diff := cmp.Diff(want, dependent); diff != "" {
				t.Errorf("chains that depend on the client (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAffinityChains, of each size class: they are the same except for the number's bits.
func TestAffinityChains(t *testing.T) {
	rules := func(prefix, clients, endpoints, mask, timeout string) []string {
		update := fmt.Sprintf("meta priority %s update @%s { meta priority & %s . ip saddr timeout %s : meta priority }",
			endpoints, clients, mask, timeout)
		return []string{
			"jump " + prefix + "sticky-port",
			"meta priority set meta priority . ip saddr map @" + clients,
			update,
			"jump numbered",
			fmt.Sprintf("meta priority %s delete @%s { meta priority & %s . ip saddr : meta priority }", endpoints, clients, mask),
			"jump " + prefix + "sticky-draw",
			update,
			"jump numbered",
		}
	}
	small := func(prefix string) []string {
		return rules(prefix, "affinity-0", "f200:0-f2ff:ffff", "fdff:ff00", "3600s")
	}
	for name, test := range map[string]struct {
		port ruleset.Port
		want map[string][]string
	}{
		"few endpoints": {
			sticky(portOf("web", "10.96.0.1", first), time.Hour), map[string][]string{"sticky-3600-0": small("")},
		},
		"few endpoints, and a node port": {
			sticky(withNodePort(portOf("web", "10.96.0.1", first)), time.Hour),
			map[string][]string{"sticky-3600-0": small(""), "nodeport-sticky-3600-0": small("nodeport-")},
		},
		"257 endpoints": {
			sticky(portWith("web", endpoints(numbersUpTo(257)...)), 3*time.Hour),
			map[string][]string{"sticky-10800-16": rules("", "affinity-16", "f300:0-f3ff:ffff", "fdff:f000", "10800s")},
		},
		"4,097 endpoints": {
			sticky(portWith("web", endpoints(numbersUpTo(4097)...)), time.Second),
			map[string][]string{"sticky-1-17": rules("", "affinity-17", "f600:0-f6ff:ffff", "fdff:0", "1s")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			port, got := withNumbers(t, serviceOf(test.port)).Ports[0], map[string][]string{}
			for _, chain := range port.Chains(bothFamilies) {
				if !strings.HasPrefix(chain.Name, "lb-") {
					got[chain.Name] = rulesOf(chain)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
		})
	}
}

// withNodePort gives a port a node port in addition to its ClusterIP.
func withNodePort(port ruleset.Port) ruleset.Port {
	nodePort := port.Frontends[0]
	nodePort.Addr, nodePort.Port, nodePort.External = model.AnyAddr(port.ID.Family), 30001, true
	port.Frontends = append(slices.Clone(port.Frontends), nodePort)
	return port
}

// portWith returns a port that balances over many endpoints.
func portWith(service string, endpoints []netip.AddrPort) ruleset.Port {
	port := portOf(service, "10.96.0.1")
	port.Cluster, port.Frontends[0].Class = endpoints, ruleset.BalanceClass(len(endpoints))
	return port
}

func numbersUpTo(count int) []int {
	numbers := make([]int, count)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// TestNamesNeverCollide, whatever the names of namespaces, Services and ports: users may choose exactly the words with
// which our names start or end.
func TestNamesNeverCollide(t *testing.T) {
	words := []string{"", "local", "external", "3600-0", "sticky", "lb-1-local-1", "tcp", "endpoints"}
	owner := map[string]string{}
	claim := func(name, holder string) {
		if other, taken := owner[name]; taken && other != holder {
			t.Errorf("the name %s is used for both %s and %s", name, other, holder)
		}
		owner[name] = holder
	}
	for _, set := range ruleset.StaticSets {
		claim("set "+set.Name, "every table")
	}
	for _, chain := range ruleset.StaticChains(model.IPv4, bothFamilies, initialNodeState) {
		claim("chain "+chain.Name, "every table")
	}
	for _, name := range []string{"lb-1-local-1", "lb-2", "lb-40", "lb-20", "lb-40-local-20", "sticky-3600-0", "nodeport-sticky-3600-0"} {
		claim("chain "+name, "all ports")
	}
	claim("set affinity-0", "all ports")
	static, dedicated := len(owner), stickyBroad().Ports[0]
	for _, namespace := range words[1:] {
		for _, name := range words[1:] {
			for _, portName := range words {
				for _, timeout := range []time.Duration{0, time.Hour} {
					port := dedicated
					port.ID.Service, port.ID.Port, port.Affinity = model.ObjectName{Namespace: namespace, Name: name}, portName, timeout
					service := withNumbers(t, serviceOf(port))
					holder := port.ID.Service.String() + " " + portName
					for _, chain := range service.Ports[0].Chains(bothFamilies) {
						if owner["chain "+chain.Name] != "all ports" {
							claim("chain "+chain.Name, holder)
						}
					}
					for _, set := range service.Ports[0].Sets() {
						if owner["set "+set.Name] == "all ports" {
							continue
						}
						claim("set "+set.Name, holder)
						if got := ruleset.SetOf(set.Name); !slices.Equal(got.Key, set.Key) || !slices.Equal(got.Value, set.Value) {
							t.Errorf("the name %s implies the key %v and the value %v, want %v and %v",
								set.Name, got.Key, got.Value, set.Key, set.Value)
						}
					}
				}
			}
		}
	}
	if want := static + 7*7*8*2*(3+1); len(owner) != want {
		t.Errorf("%d names, want %d: three chains and a set for each port, with and without affinity", len(owner), want)
	}
}
