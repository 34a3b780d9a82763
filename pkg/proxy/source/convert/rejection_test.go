package convert

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestRejectionRoundTrip covers every kind that is read.
func TestRejectionRoundTrip(t *testing.T) {
	name := model.ObjectName{Namespace: "shop", Name: "web"}
	addr, prefix := netip.MustParseAddr("fd00::1"), netip.MustParsePrefix("10.0.0.0/8")
	values := map[*Kind]any{
		Services: &model.Service{
			Name: name, Created: time.Unix(1_800_000_000, 0).UTC(), IsHeadless: true, ClusterIPs: []netip.Addr{addr},
			Ports:       []model.ServicePort{{Name: "http", Protocol: model.SCTP, Port: 80, NodePort: 30080}},
			ExternalIPs: []netip.Addr{addr}, LoadBalancerIPs: []netip.Addr{addr}, SourceRanges: []netip.Prefix{prefix},
			HealthCheckNodePort: 1, InternalTrafficLocal: true, ExternalTrafficLocal: true, AffinityTimeout: time.Hour,
			Topology: policy.Topology{
				Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120, Clients: []string{"a/b"}, Measured: true,
			},
			Findings: []model.Finding{{Kind: ServiceKind, Name: name, Code: model.PartiallyIgnored, Field: "spec.a", Reason: "b"}},
		},
		EndpointSlices: &model.EndpointSlice{
			Name: name, Service: name, Family: model.IPv6, Ports: []model.SlicePort{{Name: "http", Protocol: model.UDP, Port: 80}},
			Endpoints: []model.SliceEndpoint{{Addr: addr, Endpoint: model.Endpoint{
				Node: "n", Zone: "z", Ready: true, Serving: true, Terminating: true, HintNodes: []string{"n"}, HintZones: []string{""},
			}}},
			Hostnames: []string{"a"}, TriggeredAt: time.Unix(1, 2).UTC(), FQDNCount: 1, MultiAddressCount: 1, IsHeadless: true,
			Findings: []model.Finding{{Code: model.PartiallyIgnored}},
		},
		ServiceCIDRs: []netip.Prefix{prefix},
		Nodes: &model.Node{
			Name: "n", Labels: map[string]string{"a": "b"}, Addresses: []netip.Addr{addr}, PodCIDRs: []netip.Prefix{prefix}, IneligibleReason: "why",
		},
	}
	values[ServiceDemands] = &model.Demand{
		Zones: map[string]uint32{"": 1, "a": 999_999}, Open: map[string]uint32{"a": 1}, AssumedZones: []string{"a"},
		EffectiveNodes: 8, Averaged: true,
		ObservedAt:     time.Unix(1_800_000_000, 0).UTC(),
		NodesReporting: 9, NodesTotal: 10, ConnectionsPerMinute: 30_012,
	}
	for _, kind := range Kinds {
		value := values[kind]
		if value == nil {
			t.Errorf("kind %s is not tested", kind.Name)
			continue
		}
		if full := reflect.Indirect(reflect.ValueOf(value)); full.Kind() == reflect.Struct {
			for i := range full.NumField() {
				if full.Field(i).IsZero() {
					t.Errorf("%s: field %s is not tested", kind.Name, full.Type().Field(i).Name)
				}
			}
		}
		for _, sent := range []Rejection{{"a.yaml", kind.Name, name, value}, {"", kind.Name, name, nil}} {
			text, err := json.Marshal([]Rejection{sent})
			if err != nil {
				t.Fatal(err)
			}
			var got []Rejection
			if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual([]Rejection{sent}, got) {
				t.Errorf("%s: %s decodes to %+v, %v", kind.Name, text, got, err)
			}
		}
	}
	for _, text := range []string{
		`{"kind": "Pod", "name": "a", "lastKnownGood": {}}`, `{"kind": "Service", "name": "a", "lastKnownGood": []}`,
	} {
		if err := json.Unmarshal([]byte(text), new(Rejection)); err == nil {
			t.Errorf("%s: got no error", text)
		}
	}
}
