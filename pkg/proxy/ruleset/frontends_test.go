package ruleset_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// eachOf writes an element for each of some keys.
func eachOf(keys []string, value string) []string {
	var elements []string
	for _, key := range keys {
		elements = append(elements, key+value)
	}
	return elements
}

// addressesOf are the frontends of the Service everyKind in a family, and its two pods, in short.
type addressesOf struct {
	clusterIP, loadBalancerIP, externalIP string // with their port
	here, there                           string // likewise
}

var everyKindIn = map[model.Family]addressesOf{
	model.IPv4: {
		"10.96.1.1 80", "203.0.113.1 80", "198.51.100.1 80", "10.244.9.1 8080", "10.244.9.2 8080",
	},
	model.IPv6: {
		"fd00:96::1:1 80", "2001:db8:1::1 80", "2001:db8:2::1 80", "fd00:244::1 8080", "fd00:244::2 8080",
	},
}

// TestTheElementsOfEveryFrontend, in every set: one pod is here, one elsewhere.
func TestTheElementsOfEveryFrontend(t *testing.T) {
	const toNodePort, split = "30001", " => class/2-local/1"
	const sticky, learn = " => jump sticky-default/web/tcp/http", " => goto learn-default/web/tcp/http"
	for title, test := range map[string]struct {
		change func(*model.Service)
		want   func(addressesOf) map[string][]string
	}{
		"with externalTrafficPolicy: Cluster": {func(*model.Service) {}, func(a addressesOf) map[string][]string {
			frontends := []string{a.clusterIP, a.externalIP, a.loadBalancerIP}
			return map[string][]string{
				"services":           eachOf(frontends, " => class/2"),
				"nodeports":          {toNodePort + " => class/2"},
				"dispatch":           slices.Repeat([]string{"class/2 => jump lb-2"}, 4),
				"endpoints":          slices.Concat(eachOf(frontends, " slot/0 => "+a.here), eachOf(frontends, " slot/1 => "+a.there)),
				"nodeport-endpoints": {toNodePort + " slot/0 => " + a.here, toNodePort + " slot/1 => " + a.there},
				"external-cluster":   {a.externalIP, a.loadBalancerIP},
				"nodeport-cluster":   {toNodePort},
			}
		}},
		"with externalTrafficPolicy: Local and session affinity": {func(s *model.Service) {
			s.ExternalTrafficLocal, s.AffinityTimeout = true, time.Hour
		}, func(a addressesOf) map[string][]string {
			outside := []string{a.externalIP, a.loadBalancerIP}
			all := append(slices.Clone(outside), a.clusterIP)
			return map[string][]string{
				"services":  append(eachOf(outside, split), a.clusterIP+" => class/2"),
				"nodeports": {toNodePort + split},
				"dispatch":  append(slices.Repeat([]string{"class/2-local/1 => jump lb-2-local-1"}, 3), "class/2 => jump lb-2"),
				"endpoints": slices.Concat(eachOf(outside, " local-slot/0 => "+a.here),
					eachOf(all, " slot/0 => "+a.here), eachOf(all, " slot/1 => "+a.there)),
				"nodeport-endpoints": {
					toNodePort + " local-slot/0 => " + a.here,
					toNodePort + " slot/0 => " + a.here, toNodePort + " slot/1 => " + a.there,
				},
				"sticky":          append(eachOf(outside, sticky+"/external"), a.clusterIP+sticky),
				"nodeport-sticky": {toNodePort + sticky + "/external"},
				"learn":           append(eachOf(outside, learn+"/external"), a.clusterIP+learn),
				"nodeport-learn":  {toNodePort + learn + "/external"},
				"external-local":  outside,
				"nodeport-local":  {toNodePort},

				"sticky-endpoints":          append(eachOf(all, " "+addrIn(a.here)), eachOf(all, " "+addrIn(a.there))...),
				"nodeport-sticky-endpoints": {toNodePort + " " + addrIn(a.here), toNodePort + " " + addrIn(a.there)},
			}
		}},
		"with internalTrafficPolicy: Local and session affinity": {func(s *model.Service) {
			s.InternalTrafficLocal, s.AffinityTimeout = true, time.Hour
		}, func(a addressesOf) map[string][]string {
			outside := []string{a.externalIP, a.loadBalancerIP}
			return map[string][]string{
				"services":  append(eachOf(outside, " => class/2"), a.clusterIP+" => class/1"),
				"nodeports": {toNodePort + " => class/2"},
				"dispatch":  append(slices.Repeat([]string{"class/2 => jump lb-2"}, 3), "class/1 => jump lb-1"),
				"endpoints": slices.Concat([]string{a.clusterIP + " slot/0 => " + a.here},
					eachOf(outside, " slot/0 => "+a.here), eachOf(outside, " slot/1 => "+a.there)),
				"nodeport-endpoints": {toNodePort + " slot/0 => " + a.here, toNodePort + " slot/1 => " + a.there},
				"sticky":             append(eachOf(outside, sticky), a.clusterIP+sticky+"/local"),
				"nodeport-sticky":    {toNodePort + sticky},
				"learn":              append(eachOf(outside, learn), a.clusterIP+learn+"/local"),
				"nodeport-learn":     {toNodePort + learn},
				"external-cluster":   outside,
				"nodeport-cluster":   {toNodePort},

				"sticky-endpoints": slices.Concat([]string{a.clusterIP + " " + addrIn(a.here)},
					eachOf(outside, " "+addrIn(a.here)), eachOf(outside, " "+addrIn(a.there))),
				"nodeport-sticky-endpoints": {toNodePort + " " + addrIn(a.here), toNodePort + " " + addrIn(a.there)},
			}
		}},
	} {
		for family, addresses := range everyKindIn {
			t.Run(title+" in "+family.String(), func(t *testing.T) {
				service := everyKind("web", 1)
				test.change(&service)
				want := test.want(addresses)
				want["restricted"] = []string{addresses.loadBalancerIP + " => sources"}
				want["dispatch"] = append(want["dispatch"], "sources => jump allow-")
				want["cluster-ips"] = []string{strings.Fields(addresses.clusterIP)[0]}
				want["hairpin"] = []string{strings.Fields(addresses.here)[0] + " " + addresses.here}
				for _, elements := range want {
					slices.Sort(elements)
				}
				got := propertyOf(programmed(service, slices.Concat(on1(1), on2(2))...).Ports[family])
				if diff := cmp.Diff(want, got.Elements); diff != "" {
					t.Errorf("elements (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestAFrontendIsReadBackFromItsElement, so that a proxy that starts knows what another left.
func TestAFrontendIsReadBackFromItsElement(t *testing.T) {
	for _, port := range programmed(everyKind("web", 1), on1(1)...).Ports {
		var want, got []model.Frontend
		for _, frontend := range port.Frontends {
			want = append(want, frontend.Frontend)
		}
		for _, set := range []ruleset.Set{ruleset.Services, ruleset.NodePorts} {
			for element := range port.Elements(set) {
				got = append(got, ruleset.FrontendOf(port.ID.Family, element))
			}
		}
		if len(want) != 4 || !slices.Equal(want, got) {
			t.Errorf("the frontends %v are read back as %v", want, got)
		}
	}
}

// addrIn returns the address in "address port".
func addrIn(endpoint string) string { return strings.Fields(endpoint)[0] }
