package ruleset_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// property is what a port owns: its elements by set, its chains and its affinity maps with what they may lead to.
type property struct {
	Elements map[string][]string
	Chains   []string
	Affinity map[string][]string
}

func propertyOf(port ruleset.Port) property {
	owned := property{Elements: map[string][]string{}, Affinity: map[string][]string{}}
	for _, set := range ruleset.StaticSets {
		var elements []ruleset.Element
		for element := range port.Elements(set) {
			elements = append(elements, element)
		}
		if len(elements) > 0 {
			owned.Elements[set.Name] = elementsInShort(set, elements)
		}
	}
	for _, chain := range port.Chains(bothFamilies) {
		owned.Chains = append(owned.Chains, chain.Name)
	}
	for _, affinity := range port.AffinityMaps() {
		for _, addr := range affinity.Endpoints {
			owned.Affinity[affinity.Set.Name] = append(owned.Affinity[affinity.Set.Name], netip.AddrPortFrom(addr, affinity.Port).String())
		}
	}
	return owned
}

const (
	first  = "10.244.1.1:8080"
	second = "10.244.2.2:8080"
	third  = "10.244.3.3:9090"
)

func withoutFrontends(port ruleset.Port) ruleset.Port {
	port.Frontends = nil
	return port
}

func withClass(port ruleset.Port, class ruleset.Class) ruleset.Port {
	port.Frontends = slices.Clone(port.Frontends)
	for i := range port.Frontends {
		port.Frontends[i].Class = class
	}
	return port
}

func TestWhatAPortOwns(t *testing.T) {
	clusterIP, dialled := []string{"10.96.0.1"}, "10.96.0.1 80"
	tests := map[string]struct {
		port ruleset.Port
		want property
	}{
		"a port that balances": {portOf("web", "10.96.0.1", first, third), property{
			Elements: map[string][]string{
				"services":    {dialled + " => class/2"},
				"dispatch":    {"class/2 => jump lb-2"},
				"endpoints":   {dialled + " slot/0 => 10.244.1.1 8080", dialled + " slot/1 => 10.244.3.3 9090"},
				"cluster-ips": clusterIP,
			},
			Chains: []string{"lb-2"},
		}},
		"a port that refuses": {portOf("web", "10.96.0.1"), property{
			Elements: map[string][]string{
				"services": {dialled + " => refuse"}, "dispatch": {"refuse => goto refuse"}, "cluster-ips": clusterIP,
			},
		}},
		"a port that drops": {withClass(portOf("web", "10.96.0.1"), ruleset.DropClass), property{
			Elements: map[string][]string{"services": {dialled + " => drop"}, "dispatch": {"drop => drop"}, "cluster-ips": clusterIP},
		}},
		"a sticky port, whose endpoints have several port numbers": {
			sticky(portOf("web", "10.96.0.1", third, first, second), time.Hour), property{
				Elements: map[string][]string{
					"services": {dialled + " => class/3"},
					"dispatch": {"class/3 => jump lb-3"},
					"endpoints": {
						dialled + " slot/0 => 10.244.3.3 9090", dialled + " slot/1 => 10.244.1.1 8080", dialled + " slot/2 => 10.244.2.2 8080",
					},
					"sticky": {dialled + " => jump sticky-default/web/tcp/http"},
					"learn":  {dialled + " => goto learn-default/web/tcp/http"},
					"sticky-endpoints": {
						dialled + " 10.244.1.1", dialled + " 10.244.2.2", dialled + " 10.244.3.3",
					},
					"cluster-ips": clusterIP,
				},
				Chains: []string{"lb-3", "sticky-default/web/tcp/http", "learn-default/web/tcp/http"},
				Affinity: map[string][]string{
					"affinity-default/web/tcp/http/8080": {first, second},
					"affinity-default/web/tcp/http/9090": {third},
				},
			},
		},
		"only endpoints on this node may dial themselves": {local(portOf("web", "10.96.0.1", first, second), 1), property{
			Elements: map[string][]string{
				"services":    {dialled + " => class/2"},
				"dispatch":    {"class/2 => jump lb-2"},
				"endpoints":   {dialled + " slot/0 => 10.244.1.1 8080", dialled + " slot/1 => 10.244.2.2 8080"},
				"cluster-ips": clusterIP,
				"hairpin":     {"10.244.1.1 10.244.1.1 8080"},
			},
			Chains: []string{"lb-2"},
		}},
		"a sticky port, one of whose endpoints owns three slots: it is remembered once": {
			sticky(portOf("web", "10.96.0.1", second, first, second, second), time.Hour), property{
				Elements: map[string][]string{
					"services": {dialled + " => class/4"},
					"dispatch": {"class/4 => jump lb-4"},
					"endpoints": {
						dialled + " slot/0 => 10.244.2.2 8080", dialled + " slot/1 => 10.244.1.1 8080",
						dialled + " slot/2 => 10.244.2.2 8080", dialled + " slot/3 => 10.244.2.2 8080",
					},
					"sticky":           {dialled + " => jump sticky-default/web/tcp/http"},
					"learn":            {dialled + " => goto learn-default/web/tcp/http"},
					"sticky-endpoints": {dialled + " 10.244.1.1", dialled + " 10.244.2.2"},
					"cluster-ips":      clusterIP,
				},
				Chains:   []string{"lb-4", "sticky-default/web/tcp/http", "learn-default/web/tcp/http"},
				Affinity: map[string][]string{"affinity-default/web/tcp/http/8080": {first, second}},
			},
		},
		"a port whose frontends all belong to others leads nowhere": {
			withoutFrontends(sticky(portOf("web", "10.96.0.1", first), time.Hour)),
			property{Elements: map[string][]string{"cluster-ips": clusterIP}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.want.Affinity == nil {
				test.want.Affinity = map[string][]string{}
			}
			if diff := cmp.Diff(test.want, propertyOf(test.port)); diff != "" {
				t.Errorf("the port owns (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPortOwnsTheSameForEachOfItsFrontends(t *testing.T) {
	port := sticky(portOf("web", "10.96.0.1", first, second), time.Hour)
	external := port.Frontends[0]
	external.Addr = netip.MustParseAddr("192.0.2.1")
	port.Frontends = append(port.Frontends, external)
	counts := map[string]int{}
	for set, elements := range propertyOf(port).Elements {
		counts[set] = len(elements)
	}
	// Each frontend counts among the owners of its class's dispatch entry.
	want := map[string]int{"services": 2, "endpoints": 4, "dispatch": 2, "sticky": 2, "learn": 2, "sticky-endpoints": 4, "cluster-ips": 1}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("numbers of elements (-want +got):\n%s", diff)
	}
}

// TestWalkingAPortsElementsCanEnd: a caller may stop at any element, and is not given another.
func TestWalkingAPortsElementsCanEnd(t *testing.T) {
	everything := everyKind("web", 1)
	everything.AffinityTimeout = time.Hour
	owned := programmed(everything, on1(1, 2)...).Ports[0]
	everything.ExternalTrafficLocal = true
	ownedLocal := programmed(everything, on1(1, 2)...).Ports[0]
	for _, set := range ruleset.StaticSets {
		t.Run(set.Name, func(t *testing.T) {
			given := 0
			for _, port := range []ruleset.Port{owned, ownedLocal} {
				for range port.Elements(set) {
					given++
					break
				}
			}
			if (given == 0) != (set.Name == ruleset.NodePortIPs.Name) || given > 2 {
				t.Errorf("%d elements of two ports were given before the walks ended, want one of each that has some", given)
			}
		})
	}
}

func TestAnAffinityMapLeadsToItsEndpointsAlone(t *testing.T) {
	port := sticky(portOf("web", "10.96.0.1", first, third), time.Hour)
	affinities := port.AffinityMaps()
	if len(affinities) != 2 {
		t.Fatalf("%d affinity maps, want one for each port number", len(affinities))
	}
	for i, endpoint := range []netip.AddrPort{netip.MustParseAddrPort(first), netip.MustParseAddrPort(third)} {
		if got := affinities[i]; got.Port != endpoint.Port() || !slices.Equal(got.Endpoints, []netip.Addr{endpoint.Addr()}) {
			t.Errorf("map %s leads to %v on port %d, want %s alone", got.Set.Name, got.Endpoints, got.Port, endpoint)
		}
	}
}

func TestNamesOfKernelObjectsFitAndDiffer(t *testing.T) {
	id := portOf("web", "10.96.0.1").ID
	names := map[string]string{}
	for title, change := range map[string]func(*model.PortID){
		"as it is":              func(*model.PortID) {},
		"in another namespace":  func(id *model.PortID) { id.Service.Namespace = "prod" },
		"of another Service":    func(id *model.PortID) { id.Service.Name = "db" },
		"with another protocol": func(id *model.PortID) { id.Protocol = model.UDP },
		"with another name":     func(id *model.PortID) { id.Port = "https" },
		"without a name":        func(id *model.PortID) { id.Port = "" },
		"with the longest names": func(id *model.PortID) {
			long := "a23456789-123456789-123456789-123456789-123456789-123456789-123"
			id.Service, id.Port, id.Protocol = model.ObjectName{Namespace: long, Name: long}, long, model.SCTP
		},
	} {
		port := sticky(portOf("web", "10.96.0.1", "10.244.1.1:65535"), time.Hour)
		port.ID = id
		change(&port.ID)
		name := port.AffinityMaps()[0].Set.Name
		if other, taken := names[name]; taken {
			t.Errorf("the port %s and the one %s have the map %s in common", title, other, name)
		}
		names[name] = title
		// NFT_NAME_MAXLEN counts the terminating zero.
		if len(name) > 255 {
			t.Errorf("%s: a name of %d bytes, want 255 at most", title, len(name))
		}
	}
}
