//go:build linux

package flows

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// testCluster returns a cluster with Services shop/a, shop/b and shop/c at 10.96.0.1 to 3, each with an endpoint
// 10.0.1.N on this node and one 10.0.2.N in another zone.
func testCluster() *model.Cluster {
	cluster := model.NewCluster("node-1")
	zone := func(name string) map[string]string { return map[string]string{string(policy.Zone): name} }
	change := model.Change{
		Nodes: map[string]*model.Node{
			"node-1": {Name: "node-1", Labels: zone("a")}, "node-2": {Name: "node-2", Labels: zone("b")},
		},
		Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{},
	}
	for i, name := range []string{"a", "b", "c"} {
		service := model.ObjectName{Namespace: "shop", Name: name}
		last := byte(i + 1)
		change.Services[service] = &model.Service{
			Name: service, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, last})},
			Ports:    []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30001 + uint16(i)}},
			Topology: policy.Topology{Keys: []policy.Key{policy.Hostname, policy.AnyNode}},
		}
		endpoint := func(network byte, node, zone string) model.SliceEndpoint {
			return model.SliceEndpoint{
				Addr: netip.AddrFrom4([4]byte{10, 0, network, last}), Endpoint: model.Endpoint{Node: node, Zone: zone, Ready: true},
			}
		}
		change.Slices[service] = &model.EndpointSlice{
			Name: service, Service: service, Family: model.IPv4, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.SliceEndpoint{endpoint(1, "node-1", "a"), endpoint(2, "node-2", "b")},
		}
	}
	cluster.Apply(change)
	return cluster
}

func entry(origDst, endpoint string, status conntrack.Status, state uint8) *conntrack.Entry {
	e := foreignEntry(origDst, endpoint, status, state)
	e.Labels[ruleset.TranslatedLabel/8] = 1 << (ruleset.TranslatedLabel % 8)
	return e
}

// foreignEntry returns an entry that another program translated.
func foreignEntry(origDst, endpoint string, status conntrack.Status, state uint8) *conntrack.Entry {
	client := netip.MustParseAddrPort("10.0.1.99:1000")
	return &conntrack.Entry{
		Protocol: model.TCP, Status: status | conntrack.DestinationNAT, State: state,
		Original: conntrack.Tuple{Source: client, Destination: netip.MustParseAddrPort(origDst)},
		Reply:    conntrack.Tuple{Source: netip.MustParseAddrPort(endpoint), Destination: client},
		Sent:     conntrack.Counter{Bytes: 1500}, Received: conntrack.Counter{Bytes: 2_500_000},
	}
}

const (
	established = conntrack.TCPEstablished
	closed      = conntrack.TCPTimeWait
	replied     = conntrack.SeenReply
)

func everything(model.ObjectName) bool { return true }

func readReport(filter func(model.ObjectName) bool) Report {
	snapshot := NewSnapshot(testCluster(), model.Families, filter)
	for _, e := range []*conntrack.Entry{
		entry("10.96.0.1:80", "10.0.1.1:8080", replied, established), entry("10.96.0.1:80", "10.0.1.1:8080", replied, established),
		entry("10.96.0.1:80", "10.0.1.1:8080", replied, closed),
		entry("10.96.0.2:80", "10.0.2.2:8080", replied, established), // crosses zones
		entry("10.96.0.3:80", "10.0.1.3:8080", 0, conntrack.TCPSynSent),
		entry("192.0.2.1:30003", "10.0.9.9:8080", replied, established),        // was an endpoint of the node port
		foreignEntry("192.0.2.1:80", "10.0.1.1:8080", replied, established),    // a port mapping
		foreignEntry("192.0.2.1:30001", "10.0.1.1:8080", replied, established), // a port mapping with the number of a node port
		foreignEntry("10.96.0.1:80", "10.0.1.1:8080", replied, established),    // an earlier proxy's
	} {
		snapshot.Add(e)
	}
	return snapshot.Report("node-1")
}

func TestServicesAreOrderedByUnrepliedConnections(t *testing.T) {
	report := readReport(everything)
	var order []string
	for _, service := range report.Services {
		order = append(order, service.Service)
	}
	if got := strings.Join(order, " "); got != "shop/c shop/b shop/a" || report.OtherPrograms != 3 || !report.CountsBytes {
		t.Errorf("order %q of %+v; want shop/c shop/b shop/a, 3 connections of other programs, and bytes", got, report)
	}
	c, a := report.Services[0], report.Services[2]
	if c.Endpoints[0].Unreplied != 1 || c.Endpoints[0].Tier != string(policy.Hostname) || c.Endpoints[0].Removed {
		t.Errorf("endpoints of shop/c: %+v, want an unreplied connection to the first", c.Endpoints)
	}
	if removed := c.Endpoints[1]; !removed.Removed || removed.Node != "" || removed.Locality != "unknown" {
		t.Errorf("the second endpoint of shop/c: %+v, want a removed one of unknown locality", removed)
	}
	if a.Established != 2 || a.Ending != 1 || a.ByLocality["same_node"] != 2 || a.Sent != 4500 { // includes the closed connection
		t.Errorf("shop/a: %+v, want 2 established, 1 ending, 2 on the same node, and 4500 bytes sent", a)
	}
}

func TestOnlyMatchingConnectionsAreListed(t *testing.T) {
	report := readReport(func(name model.ObjectName) bool { return name.Name == "b" })
	if len(report.Services) != 1 || report.Services[0].Service != "shop/b" {
		t.Errorf("got %+v, want only shop/b", report)
	}
}

func TestText(t *testing.T) {
	report := readReport(everything)
	for name, test := range map[string]struct {
		byEndpoint bool
		most       int
		want       string
	}{
		"by Service": {false, 0, `
SERVICE   UNANSWERED   OPEN   SAME-NODE   SAME-ZONE   OTHER-ZONE   UNKNOWN   ENDING   SENT      RECEIVED
shop/c    1            1      1           0           0            1         0        3 kB      2.5 MB
shop/b    0            1      0           0           1            0         0        1.5 kB    2.5 MB
shop/a    0            2      2           0           0            0         1        4.5 kB    7.5 MB
`},
		"the first alone": {false, 1, `
SERVICE   UNANSWERED   OPEN   SAME-NODE   SAME-ZONE   OTHER-ZONE   UNKNOWN   ENDING   SENT   RECEIVED
shop/c    1            1      1           0           0            1         0        3 kB   2.5 MB
and 2 more; --top 0 shows all
`},
		"by endpoint": {true, 2, `
ENDPOINT                   NODE     ZONE   LOCALITY    TIER                     UNANSWERED   OPEN   ENDING   SENT     RECEIVED
10.0.1.3:8080/TCP          node-1   a      same_node   kubernetes.io/hostname   1            0      0        1.5 kB   0 B
10.0.9.9:8080/TCP (gone)   -        -      unknown     none                     0            1      0        1.5 kB   2.5 MB
and 2 more; --top 0 shows all
`},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			if err := Text(&text, &report, test.byEndpoint, test.most); err != nil {
				t.Fatal(err)
			}
			if got := "\n" + text.String(); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(test.want), " ") {
				t.Errorf("got%s", got)
			}
		})
	}
}
