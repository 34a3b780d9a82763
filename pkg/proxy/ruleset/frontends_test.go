package ruleset_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// elementsFor returns an element for each key.
func elementsFor(keys []string, value string) []string {
	var elements []string
	for _, key := range keys {
		elements = append(elements, key+value)
	}
	return elements
}

// kindAddresses are the frontends of the Service everyKind in a family, and its two pods, in short form.
type kindAddresses struct {
	clusterIP, loadBalancerIP, externalIP string // with their port
	local, remote                         string // with their port
}

var everyKindIn = map[model.Family]kindAddresses{
	model.IPv4: {
		"10.96.1.1 80", "203.0.113.1 80", "198.51.100.1 80", "10.244.9.1 8080", "10.244.9.2 8080",
	},
	model.IPv6: {
		"fd00:96::1:1 80", "2001:db8:1::1 80", "2001:db8:2::1 80", "fd00:244::1 8080", "fd00:244::2 8080",
	},
}

// TestTheElementsOfEveryFrontend, in every set: one pod is on this node, one elsewhere.
func TestTheElementsOfEveryFrontend(t *testing.T) {
	const toNodePort, split = "30001", " => class/2-local/1"
	const sticky, stickyNodePort = " => sticky/3600-0", " => nodeport-sticky/3600-0"
	stickyDispatch := []string{
		"sticky/3600-0 => jump sticky-3600-0", "sticky/3600-0 => jump sticky-3600-0", "sticky/3600-0 => jump sticky-3600-0",
		"nodeport-sticky/3600-0 => jump nodeport-sticky-3600-0",
	}
	toNumber := func(endpoint string) string { return " => " + formatEndpoint(joined(endpoint)) }
	numbered := func(endpoint string) string { return formatEndpoint(joined(endpoint)) + " => " + endpoint }
	for title, test := range map[string]struct {
		change func(*model.Service)
		want   func(kindAddresses) map[string][]string
	}{
		"with externalTrafficPolicy: Cluster": {func(*model.Service) {}, func(a kindAddresses) map[string][]string {
			frontends := []string{a.clusterIP, a.externalIP, a.loadBalancerIP}
			return map[string][]string{
				"services":           elementsFor(frontends, " => class/2"),
				"nodeports":          {toNodePort + " => class/2"},
				"dispatch":           slices.Repeat([]string{"class/2 => jump lb-2"}, 4),
				"endpoints":          slices.Concat(elementsFor(frontends, " slot/0 => "+a.local), elementsFor(frontends, " slot/1 => "+a.remote)),
				"nodeport-endpoints": {toNodePort + " slot/0 => " + a.local, toNodePort + " slot/1 => " + a.remote},
				"external-cluster":   {a.externalIP, a.loadBalancerIP},
				"nodeport-cluster":   {toNodePort},
			}
		}},
		"with externalTrafficPolicy: Local and session affinity": {func(s *model.Service) {
			s.ExternalTrafficLocal, s.AffinityTimeout = true, time.Hour
		}, func(a kindAddresses) map[string][]string {
			outside := []string{a.externalIP, a.loadBalancerIP}
			all := append(slices.Clone(outside), a.clusterIP)
			return map[string][]string{
				"services":        elementsFor(all, sticky),
				"nodeports":       {toNodePort + stickyNodePort},
				"dispatch":        slices.Clone(stickyDispatch),
				"sticky":          append(elementsFor(outside, split), a.clusterIP+" => class/2"),
				"nodeport-sticky": {toNodePort + split},
				"sticky-dispatch": append(slices.Repeat([]string{"class/2-local/1 => jump lb-2-local-1"}, 3), "class/2 => jump lb-2"),
				"external-local":  outside,
				"nodeport-local":  {toNodePort},

				"sticky-ports":            elementsFor(all, " => port"),
				"nodeport-sticky-ports":   {toNodePort + " => port"},
				"sticky-outside":          elementsFor(outside, " => port"),
				"nodeport-sticky-outside": {toNodePort + " => port"},
				"sticky-endpoints": slices.Concat(elementsFor(outside, " local-slot/0"+toNumber(a.local)),
					elementsFor(all, " slot/0"+toNumber(a.local)), elementsFor(all, " slot/1"+toNumber(a.remote))),
				"nodeport-sticky-endpoints": {
					toNodePort + " local-slot/0" + toNumber(a.local),
					toNodePort + " slot/0" + toNumber(a.local), toNodePort + " slot/1" + toNumber(a.remote),
				},
				"numbered": {numbered(a.local), numbered(a.local), numbered(a.remote)}, // in two views
			}
		}},
		"with internalTrafficPolicy: Local and session affinity": {func(s *model.Service) {
			s.InternalTrafficLocal, s.AffinityTimeout = true, time.Hour
		}, func(a kindAddresses) map[string][]string {
			outside := []string{a.externalIP, a.loadBalancerIP}
			return map[string][]string{
				"services":         append(elementsFor(outside, sticky), a.clusterIP+sticky),
				"nodeports":        {toNodePort + stickyNodePort},
				"dispatch":         slices.Clone(stickyDispatch),
				"sticky":           append(elementsFor(outside, " => class/2"), a.clusterIP+" => class/1"),
				"nodeport-sticky":  {toNodePort + " => class/2"},
				"sticky-dispatch":  append(slices.Repeat([]string{"class/2 => jump lb-2"}, 3), "class/1 => jump lb-1"),
				"external-cluster": outside,
				"nodeport-cluster": {toNodePort},

				"sticky-ports":          append(elementsFor(outside, " => port"), a.clusterIP+" => port"),
				"nodeport-sticky-ports": {toNodePort + " => port"},
				"sticky-endpoints": slices.Concat([]string{a.clusterIP + " slot/0" + toNumber(a.local)},
					elementsFor(outside, " slot/0"+toNumber(a.local)), elementsFor(outside, " slot/1"+toNumber(a.remote))),
				"nodeport-sticky-endpoints": {toNodePort + " slot/0" + toNumber(a.local), toNodePort + " slot/1" + toNumber(a.remote)},
				"numbered":                  {numbered(a.local), numbered(a.local), numbered(a.remote)}, // in two views
			}
		}},
	} {
		for family, addresses := range everyKindIn {
			t.Run(title+" in "+family.String(), func(t *testing.T) {
				service := everyKind("web", 1)
				test.change(&service)
				want := test.want(addresses)
				want["restricted"] = []string{addresses.loadBalancerIP + " => sources"}
				want["sources"] = slices.Clone(everySources[family])
				want["cluster-ips"] = []string{strings.Fields(addresses.clusterIP)[0]}
				want["hairpin"] = []string{strings.Fields(addresses.local)[0] + " " + addresses.local}
				for _, elements := range want {
					slices.Sort(elements)
				}
				ports := withNumbers(t, desiredService(service, slices.Concat(podsOnNode1(1), podsOnNode2(2))...)).Ports
				got := ownedBy(ports[family])
				if diff := cmp.Diff(want, got.Elements); diff != "" {
					t.Errorf("elements (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestAFrontendIsReadBackFromItsElement, so that a starting proxy can read what another one left.
func TestAFrontendIsReadBackFromItsElement(t *testing.T) {
	for _, port := range desiredService(everyKind("web", 1), podsOnNode1(1)...).Ports {
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
			t.Errorf("frontends %v are read back as %v", want, got)
		}
	}
}

// joined returns "address:port" for "address port".
func joined(endpoint string) string {
	addr, port, _ := strings.Cut(endpoint, " ")
	return net.JoinHostPort(addr, port)
}
