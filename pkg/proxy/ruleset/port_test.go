package ruleset_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// ownedObjects is what a port owns: its elements by set, its chains and its sets in addition to those of every table.
type ownedObjects struct {
	Elements map[string][]string
	Chains   []string
	Sets     []string
}

func ownedBy(port ruleset.Port) ownedObjects {
	owned := ownedObjects{Elements: map[string][]string{}}
	for _, set := range ruleset.StaticSets {
		var elements []ruleset.Element
		for element := range port.Elements(set) {
			elements = append(elements, element)
		}
		if len(elements) > 0 {
			owned.Elements[set.Name] = formatElements(set, elements)
		}
	}
	for _, chain := range port.Chains(bothFamilies) {
		owned.Chains = append(owned.Chains, chain.Name)
	}
	for _, set := range port.Sets() {
		owned.Sets = append(owned.Sets, set.Name)
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
	clusterIP, frontend := []string{"10.96.0.1"}, "10.96.0.1 80"
	tests := map[string]struct {
		port ruleset.Port
		want ownedObjects
	}{
		"a port that balances": {portOf("web", "10.96.0.1", first, third), ownedObjects{
			Elements: map[string][]string{
				"services":    {frontend + " => class/2"},
				"dispatch":    {"class/2 => jump lb-2"},
				"endpoints":   {frontend + " slot/0 => 10.244.1.1 8080", frontend + " slot/1 => 10.244.3.3 9090"},
				"cluster-ips": clusterIP,
			},
			Chains: []string{"lb-2"},
		}},
		"a port that refuses": {portOf("web", "10.96.0.1"), ownedObjects{
			Elements: map[string][]string{
				"services": {frontend + " => refuse"}, "dispatch": {"refuse => goto refuse"}, "cluster-ips": clusterIP,
			},
		}},
		"a port that drops": {withClass(portOf("web", "10.96.0.1"), ruleset.DropClass), ownedObjects{
			Elements: map[string][]string{"services": {frontend + " => drop"}, "dispatch": {"drop => drop"}, "cluster-ips": clusterIP},
		}},
		"a sticky port": {
			sticky(portOf("web", "10.96.0.1", third, first, second), time.Hour), ownedObjects{
				Elements: map[string][]string{
					"services":        {frontend + " => sticky/3600-0"},
					"dispatch":        {"sticky/3600-0 => jump sticky-3600-0"},
					"sticky":          {frontend + " => class/3"},
					"sticky-dispatch": {"class/3 => jump lb-3"},
					"sticky-ports":    {frontend + " => port"},
					"sticky-endpoints": {
						frontend + " slot/0 => " + formatEndpoint(third), frontend + " slot/1 => " + formatEndpoint(first),
						frontend + " slot/2 => " + formatEndpoint(second),
					},
					"numbered": sorted(
						formatEndpoint(first)+" => 10.244.1.1 8080", formatEndpoint(second)+" => 10.244.2.2 8080",
						formatEndpoint(third)+" => 10.244.3.3 9090"),
					"cluster-ips": clusterIP,
				},
				Chains: []string{"lb-3", "sticky-3600-0"},
				Sets:   []string{"affinity-0"},
			},
		},
		"only endpoints on this node may dial themselves": {local(portOf("web", "10.96.0.1", first, second), 1), ownedObjects{
			Elements: map[string][]string{
				"services":    {frontend + " => class/2"},
				"dispatch":    {"class/2 => jump lb-2"},
				"endpoints":   {frontend + " slot/0 => 10.244.1.1 8080", frontend + " slot/1 => 10.244.2.2 8080"},
				"cluster-ips": clusterIP,
				"hairpin":     {"10.244.1.1 10.244.1.1 8080"},
			},
			Chains: []string{"lb-2"},
		}},
		"a sticky port with an endpoint in three slots: one number": {
			sticky(portOf("web", "10.96.0.1", second, first, second, second), time.Hour), ownedObjects{
				Elements: map[string][]string{
					"services":        {frontend + " => sticky/3600-0"},
					"dispatch":        {"sticky/3600-0 => jump sticky-3600-0"},
					"sticky":          {frontend + " => class/4"},
					"sticky-dispatch": {"class/4 => jump lb-4"},
					"sticky-ports":    {frontend + " => port"},
					"sticky-endpoints": {
						frontend + " slot/0 => " + formatEndpoint(second), frontend + " slot/1 => " + formatEndpoint(first),
						frontend + " slot/2 => " + formatEndpoint(second), frontend + " slot/3 => " + formatEndpoint(second),
					},
					"numbered":    sorted(formatEndpoint(first)+" => 10.244.1.1 8080", formatEndpoint(second)+" => 10.244.2.2 8080"),
					"cluster-ips": clusterIP,
				},
				Chains: []string{"lb-4", "sticky-3600-0"},
				Sets:   []string{"affinity-0"},
			},
		},
		"a sticky port that refuses": {sticky(portOf("web", "10.96.0.1"), time.Hour), ownedObjects{
			Elements: map[string][]string{
				"services": {frontend + " => refuse"}, "dispatch": {"refuse => goto refuse"}, "cluster-ips": clusterIP,
			},
		}},
		"a sticky port with externalTrafficPolicy Local: numbers of two views": {
			splitPort(sticky(portOf("web", "10.96.0.1", first, second), time.Hour)), ownedObjects{
				Elements: map[string][]string{
					"services":        {frontend + " => sticky/3600-0"},
					"dispatch":        {"sticky/3600-0 => jump sticky-3600-0"},
					"sticky":          {frontend + " => class/2-local/1"},
					"sticky-dispatch": {"class/2-local/1 => jump lb-2-local-1"},
					"sticky-ports":    {frontend + " => port"},
					"sticky-outside":  {frontend + " => port"},
					"sticky-endpoints": {
						frontend + " local-slot/0 => " + formatEndpoint(first),
						frontend + " slot/0 => " + formatEndpoint(first), frontend + " slot/1 => " + formatEndpoint(second),
					},
					"numbered": sorted(formatEndpoint(first)+" => 10.244.1.1 8080", formatEndpoint(first)+" => 10.244.1.1 8080",
						formatEndpoint(second)+" => 10.244.2.2 8080"),
					"external-local": {frontend},
					"cluster-ips":    clusterIP,
				},
				Chains: []string{"lb-2-local-1", "sticky-3600-0"},
				Sets:   []string{"affinity-0"},
			},
		},
		"a sticky port with two endpoints that collide": {
			collidingPort(t), ownedObjects{
				Elements: map[string][]string{
					"services":        {frontend + " => sticky/3600-0"},
					"dispatch":        {"sticky/3600-0 => jump sticky-3600-0"},
					"sticky":          {frontend + " => class/2"},
					"sticky-dispatch": {"class/2 => jump lb-2"},
					"sticky-ports":    {frontend + " => port"},
					"sticky-endpoints": {
						frontend + " slot/0 => " + formatEndpoint(collidingPort(t).Cluster[0].String()), frontend + " slot/1 => endpoint/0",
					},
					"numbered": {formatEndpoint(collidingPort(t).Cluster[0].String()) + " => " +
						strings.Replace(collidingPort(t).Cluster[0].String(), ":", " ", 1)},
					"numbered-collided": {"endpoint/0 => " + strings.Replace(collidingPort(t).Cluster[1].String(), ":", " ", 1)},
					"cluster-ips":       clusterIP,
				},
				Chains: []string{"lb-2", "sticky-3600-0"},
				Sets:   []string{"affinity-0"},
			},
		},
		"a port without frontends has only its ClusterIP": {
			withoutFrontends(sticky(portOf("web", "10.96.0.1", first), time.Hour)),
			ownedObjects{Elements: map[string][]string{"cluster-ips": clusterIP}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ownedBy(withNumbers(t, serviceOf(test.port)).Ports[0])); diff != "" {
				t.Errorf("the port owns (-want +got):\n%s", diff)
			}
		})
	}
}

func sorted(texts ...string) []string { return slices.Sorted(slices.Values(texts)) }

// splitPort keeps clients outside on this node, which has the first of the endpoints.
func splitPort(port ruleset.Port) ruleset.Port {
	port.Local = port.Cluster[:1]
	port.Frontends[0].External, port.Frontends[0].Local = true, true
	port.Frontends[0].Class = ruleset.SplitClass(1, len(port.Cluster))
	return port
}

// collidingPort has two endpoints that would have the same number.
func collidingPort(t testing.TB) ruleset.Port {
	t.Helper()
	return sticky(portWith("web", colliding(t, 2)), time.Hour)
}

func TestAPortOwnsTheSameForEachOfItsFrontends(t *testing.T) {
	port := sticky(portOf("web", "10.96.0.1", first, second), time.Hour)
	external := port.Frontends[0]
	external.Addr = netip.MustParseAddr("192.0.2.1")
	port.Frontends = append(port.Frontends, external)
	counts := map[string]int{}
	for set, elements := range ownedBy(withNumbers(t, serviceOf(port)).Ports[0]).Elements {
		counts[set] = len(elements)
	}
	// Each frontend counts among the owners of its class's dispatch entry. The endpoints have their numbers once.
	want := map[string]int{
		"services": 2, "dispatch": 2, "sticky": 2, "sticky-dispatch": 2, "sticky-ports": 2, "sticky-endpoints": 4, "numbered": 2,
		"cluster-ips": 1,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("numbers of elements (-want +got):\n%s", diff)
	}
}

// TestWalkingAPortsElementsCanEnd: a caller may stop at any element, and gets no other.
func TestWalkingAPortsElementsCanEnd(t *testing.T) {
	everything := everyKind("web", 1)
	everything.AffinityTimeout = time.Hour
	owned := withNumbers(t, desiredService(everything, podsOnNode1(1, 2)...)).Ports[0]
	everything.ExternalTrafficLocal = true
	ownedLocal := withNumbers(t, desiredService(everything, podsOnNode1(1, 2)...)).Ports[0]
	everything.AffinityTimeout = 0
	plain := withNumbers(t, desiredService(everything, podsOnNode1(1, 2)...)).Ports[0]
	for _, set := range ruleset.StaticSets {
		t.Run(set.Name, func(t *testing.T) {
			yielded := 0
			for _, port := range []ruleset.Port{owned, ownedLocal, plain, withNumbers(t, serviceOf(collidingPort(t))).Ports[0]} {
				for range port.Elements(set) {
					yielded++
					break
				}
			}
			if (yielded == 0) != (set.Name == ruleset.NodePortIPs.Name) || yielded > 4 {
				t.Errorf("%d elements of four ports were yielded, want one for each port that has some", yielded)
			}
		})
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
		for _, timeout := range []time.Duration{0, time.Hour} {
			port := stickyBroad().Ports[0] // a port with a dedicated map, whose objects have its name
			port.ID, port.Affinity = id, timeout
			change(&port.ID)
			for _, name := range namesOf(withNumbers(t, serviceOf(port)).Ports[0]) {
				if other, taken := names[name]; taken {
					t.Errorf("the port %s and the port %s share %s", title, other, name)
				}
				names[name] = title
				// NFT_NAME_MAXLEN counts the terminating zero.
				if len(name) > 255 {
					t.Errorf("%s: a name of %d bytes, want 255 at most", title, len(name))
				}
			}
		}
	}
	if want := 7 * 2 * 4; len(names) != want {
		t.Errorf("%d names, want %d", len(names), want)
	}
}

// namesOf returns the names of a port's own objects.
func namesOf(port ruleset.Port) (names []string) {
	for _, chain := range port.Chains(bothFamilies) {
		names = append(names, "chain "+chain.Name)
	}
	for _, set := range port.Sets() {
		names = append(names, "set "+set.Name)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, "/") })
}
