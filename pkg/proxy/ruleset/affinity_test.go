package ruleset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// rulesOf writes a chain's rules in IPv4, a line each.
func rulesOf(chain ruleset.Chain) []string {
	lines := strings.Split(strings.TrimSuffix(chain.Text(model.IPv4), "\n"), "\n")
	var rules []string
	for _, line := range lines[1 : len(lines)-1] {
		rules = append(rules, strings.TrimSpace(line))
	}
	return rules
}

// isPortsOwn reports whether no other port has the chain.
func isPortsOwn(chain ruleset.Chain) bool {
	return !strings.HasPrefix(chain.Name, "lb-") && !strings.HasPrefix(chain.Name, "allow-")
}

// affinityOf is what a port has for session affinity: the rules of its chains, and the numbers of the pods each map
// leads to.
func affinityOf(port ruleset.Port, config ruleset.Config) (chains map[string][]string, maps map[string][]string) {
	chains, maps = map[string][]string{}, map[string][]string{}
	for _, chain := range port.Chains(config) {
		if isPortsOwn(chain) {
			chains[chain.Name] = rulesOf(chain)
		}
	}
	for _, affinity := range port.AffinityMaps() {
		for _, endpoint := range affinity.Endpoints {
			maps[affinity.Set.Name] = append(maps[affinity.Set.Name], endpoint.String())
		}
	}
	return chains, maps
}

// TestTheViewsOfSessionAffinity: what a client is remembered with depends on which endpoints its kind of client may
// have.
func TestTheViewsOfSessionAffinity(t *testing.T) {
	const port, clients = "default/web/tcp/http", "affinity-default/web/tcp/http/8080"
	const localClients = clients + "/local"
	const here, there, outside = "10.244.9.1", "10.244.9.2", "ip saddr != 10.244.0.0/16 fib saddr type != local "
	look := func(affinity string) []string {
		return []string{"meta l4proto tcp dnat ip to ip saddr map @" + affinity + " : 8080"}
	}
	remember := func(affinity string) []string {
		const update = "meta l4proto tcp ct reply proto-src 8080 update @"
		return []string{update + affinity + " { ct original ip saddr timeout 3600s : ct reply ip saddr }"}
	}
	all := map[string][]string{"sticky-" + port: look(clients), "learn-" + port: remember(clients)}
	kept := map[string][]string{"sticky-" + port + "/local": look(localClients), "learn-" + port + "/local": remember(localClients)}
	choose := func(fromOutside, fromInside string) map[string][]string {
		lead := func(prefix, to string) string { return strings.ReplaceAll(to, "PORT", prefix+port) }
		chains := map[string][]string{}
		for _, prefix := range []string{"sticky-", "learn-"} {
			chains[prefix+port+"/external"] = []string{outside + lead(prefix, fromOutside), lead(prefix, fromInside)}
		}
		return chains
	}
	for name, test := range map[string]struct {
		internalLocal, externalLocal bool
		change                       func(*model.Service)
		pods                         []pod
		chains                       []map[string][]string
		maps                         map[string][]string
	}{
		"one view for all frontends": {
			pods: slices.Concat(on1(1), on2(2)), chains: []map[string][]string{all}, maps: map[string][]string{clients: {here, there}},
		},
		"two views, and a choice between them": {
			externalLocal: true, pods: slices.Concat(on1(1), on2(2)),
			chains: []map[string][]string{all, kept, choose("goto PORT/local", "goto PORT")},
			maps:   map[string][]string{clients: {here, there}, localClients: {here}},
		},
		"clients outside have no endpoint on this node": {
			externalLocal: true, pods: on2(2),
			chains: []map[string][]string{all, choose("return", "goto PORT")}, maps: map[string][]string{clients: {there}},
		},
		"keys leave no endpoint for clients inside": {
			externalLocal: true, pods: on1(1), change: func(s *model.Service) { s.Topology.Keys = noKeys },
			chains: []map[string][]string{kept, choose("goto PORT/local", "return")}, maps: map[string][]string{localClients: {here}},
		},
		"the ClusterIP has the local view alone": {
			internalLocal: true, pods: slices.Concat(on1(1), on2(2)),
			chains: []map[string][]string{all, kept}, maps: map[string][]string{clients: {here, there}, localClients: {here}},
		},
		"the ClusterIP and clients outside share the local view": {
			internalLocal: true, externalLocal: true, pods: slices.Concat(on1(1), on2(2)),
			chains: []map[string][]string{all, kept, choose("goto PORT/local", "goto PORT")},
			maps:   map[string][]string{clients: {here, there}, localClients: {here}},
		},
		"a ClusterIP alone, kept on this node, needs no view of others": {
			internalLocal: true, pods: slices.Concat(on1(1), on2(2)),
			change: func(s *model.Service) { s.LoadBalancerIPs, s.ExternalIPs, s.Ports[0].NodePort = nil, nil, 0 },
			chains: []map[string][]string{kept}, maps: map[string][]string{localClients: {here}},
		},
		"no endpoint serves": {externalLocal: true, pods: on2(2), change: func(s *model.Service) { s.Topology.Keys = noKeys }},
		"no endpoints":       {internalLocal: true, externalLocal: true},
		"no affinity": {
			externalLocal: true, pods: on1(1), change: func(s *model.Service) { s.AffinityTimeout = 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := everyKind("web", 1)
			service.AffinityTimeout, service.InternalTrafficLocal, service.ExternalTrafficLocal = time.Hour, test.internalLocal, test.externalLocal
			if test.change != nil {
				test.change(&service)
			}
			want := map[string][]string{}
			for _, chains := range test.chains {
				maps.Copy(want, chains)
			}
			chains, maps := affinityOf(programmed(service, test.pods...).Ports[0], bothFamilies)
			if diff := cmp.Diff(want, chains); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.maps, maps, comparePorts); diff != "" {
				t.Errorf("maps (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAChoiceChainAsksWhatADrawChainAsks, so that a client is looked up where it is drawn for.
func TestAChoiceChainAsksWhatADrawChainAsks(t *testing.T) {
	for name, detector := range detectors {
		t.Run("pods by "+name, func(t *testing.T) {
			port := programmed(keepingLocal(everyKind("web", 1)), slices.Concat(on1(1), on2(2))...).Ports[0]
			asking := 0
			for _, chain := range port.Chains(ruleset.Config{LocalTraffic: detector.traffic}) {
				if rules := rulesOf(chain); chain.Name == "lb-2-local-1" || strings.HasSuffix(chain.Name, "/external") {
					asking++
					if !strings.HasPrefix(rules[0], detector.outside) {
						t.Errorf("chain %s begins with %q, want it to ask %q", chain.Name, rules[0], detector.outside)
					}
				}
			}
			if asking != 3 {
				t.Errorf("%d chains depend on the client, want 3: one that draws, one that looks up, one that remembers", asking)
			}
		})
	}
}

// TestNamesNeverCollide, whatever namespaces, Services and ports are called: each word that a name ends or begins with
// may be a word of a user too.
func TestNamesNeverCollide(t *testing.T) {
	words := []string{"", "local", "external", "8080", "sticky", "lb-1-local-1", "tcp"}
	owner := map[string]string{}
	claim := func(name, by string) {
		if other, taken := owner[name]; taken {
			t.Errorf("%s is the name of an object of %s and of %s", name, other, by)
		}
		owner[name] = by
	}
	for _, set := range ruleset.StaticSets {
		claim("set "+set.Name, "every table")
	}
	for _, chain := range ruleset.StaticChains(model.IPv4, bothFamilies, home) {
		claim("chain "+chain.Name, "every table")
	}
	claim("chain lb-1-local-1", "every table")
	claim("chain lb-2", "every table")
	for _, namespace := range words[1:] {
		for _, name := range words[1:] {
			for _, portName := range words {
				service := keepingLocal(everyKind(name, 1))
				service.Name.Namespace, service.Ports[0].Name = namespace, portName
				port := ruleset.NewPort(decided(service, slices.Concat(on1(1), on2(2))...)[0])
				for _, chain := range port.Chains(bothFamilies) {
					if isPortsOwn(chain) {
						claim("chain "+chain.Name, port.ID.Service.String()+" "+portName)
					}
				}
				for _, affinity := range port.AffinityMaps() {
					claim("set "+affinity.Set.Name, port.ID.Service.String()+" "+portName)
				}
			}
		}
	}
	static := len(ruleset.StaticSets) + len(ruleset.StaticChains(model.IPv4, bothFamilies, home)) + 2
	if want := static + 6*6*7*8; len(owner) != want {
		t.Errorf("%d names, want %d: six chains and two maps for each port", len(owner), want)
	}
}
