// Package promise checks accepted objects against the guarantees that package model documents.
package promise

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

func checkLabel(t *testing.T, name string) {
	t.Helper()
	if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
		t.Errorf("name %q: %v", name, messages)
	}
}

func checkSubdomain(t *testing.T, name string) {
	t.Helper()
	if messages := validation.IsDNS1123Subdomain(name); len(messages) > 0 {
		t.Errorf("name %q: %v", name, messages)
	}
}

// checkAddrs checks that all are canonical unicast addresses, without duplicates.
func checkAddrs(t *testing.T, addrs []netip.Addr) {
	t.Helper()
	seen := make(map[netip.Addr]bool)
	for _, addr := range addrs {
		if !isUnicast(addr) || seen[addr] {
			t.Errorf("invalid or duplicate address %s in %v", addr, addrs)
		}
		seen[addr] = true
	}
}

func isUnicast(addr netip.Addr) bool {
	return addr.IsValid() && !addr.Is4In6() && addr.Zone() == "" && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() &&
		!addr.IsUnspecified() && !addr.IsMulticast() && addr.String() != "255.255.255.255"
}

// CheckPrefixes checks that all are canonical ranges that do not overlap.
func CheckPrefixes(t *testing.T, prefixes []netip.Prefix) {
	t.Helper()
	for i, prefix := range prefixes {
		if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			t.Errorf("range %s is invalid or not canonical", prefix)
		}
		for _, other := range prefixes[:i] {
			if other.Overlaps(prefix) {
				t.Errorf("%s overlaps %s", other, prefix)
			}
		}
	}
}

// checkOnePerFamily checks that no two items are of the same family.
func checkOnePerFamily[T any](t *testing.T, items []T, familyOf func(T) model.Family) {
	t.Helper()
	seen := map[model.Family]bool{}
	for _, item := range items {
		if seen[familyOf(item)] {
			t.Errorf("two items of the same family in %v", items)
		}
		seen[familyOf(item)] = true
	}
}

// maxFindings bounds the PartiallyIgnored findings of one object: one for each of 20 parts, and one that counts the
// rest.
const maxFindings = 21

func checkFindings(t *testing.T, kind string, name model.ObjectName, findings []model.Finding) {
	t.Helper()
	ignored := 0
	for _, finding := range findings {
		if finding.Kind != kind || finding.Name != name || finding.Reason == "" || !slices.Contains(model.FindingCodes, finding.Code) {
			t.Errorf("unexpected finding of %s %s: %+v", kind, name, finding)
		}
		if finding.Code != model.PartiallyIgnored {
			continue // for an annotation every error is reported
		}
		ignored++
		for _, text := range []string{finding.Field, finding.Reason} {
			if strings.ContainsAny(text, "\n\r\x1b") || len(text) > sanitize.MaxShort+len("...") {
				t.Errorf("unsafe or too long text: %q", text)
			}
		}
	}
	if ignored > maxFindings {
		t.Errorf("got %d findings of ignored parts, want at most 21", ignored)
	}
}

// CheckService checks the guarantees of package model for a Service. nil means that there is none.
func CheckService(t *testing.T, service *model.Service) {
	t.Helper()
	if service == nil {
		return
	}
	checkLabel(t, service.Name.Namespace)
	checkLabel(t, service.Name.Name)
	if len(service.Ports) == 0 || len(service.ClusterIPs) == 0 {
		t.Errorf("service %v has no frontend", service)
	}
	checkServicePorts(t, service.Ports)
	checkOnePerFamily(t, service.ClusterIPs, model.FamilyOf)
	for _, addrs := range [][]netip.Addr{service.ClusterIPs, service.ExternalIPs, service.LoadBalancerIPs} {
		checkAddrs(t, addrs)
		for _, addr := range addrs {
			if _, ok := service.ClusterIP(model.FamilyOf(addr)); !ok {
				t.Errorf("%s is of a family without a ClusterIP", addr)
			}
		}
	}
	CheckPrefixes(t, service.SourceRanges)
	for _, prefix := range service.SourceRanges {
		if prefix.Bits() == 0 {
			t.Errorf("source range %s allows all clients", prefix)
		}
	}
	if service.HealthCheckNodePort != 0 && !service.ExternalTrafficLocal {
		t.Errorf("health check port %d on a Service without externalTrafficPolicy Local", service.HealthCheckNodePort)
	}
	checkFindings(t, "Service", service.Name, service.Findings)
}

func checkServicePorts(t *testing.T, ports []model.ServicePort) {
	t.Helper()
	seen := make(map[any]bool)
	type number struct {
		protocol model.Protocol
		port     uint16
	}
	type nodePort number
	for _, port := range ports {
		servicePort, node := number{port.Protocol, port.Port}, nodePort{port.Protocol, port.NodePort}
		if port.Port == 0 || seen[servicePort] || seen[port.Name] || port.NodePort != 0 && seen[node] {
			t.Errorf("a zero or duplicate port in %v", ports)
		}
		seen[servicePort], seen[port.Name], seen[node] = true, true, true
		if port.Name != "" {
			checkLabel(t, port.Name)
		}
	}
}

// CheckSlice checks the guarantees of package model for an EndpointSlice. nil means that there is none.
func CheckSlice(t *testing.T, slice *model.EndpointSlice) {
	t.Helper()
	if slice == nil {
		return
	}
	checkLabel(t, slice.Name.Namespace)
	checkLabel(t, slice.Service.Name)
	checkSubdomain(t, slice.Name.Name)
	names := make(map[string]bool)
	for _, port := range slice.Ports {
		if port.Port == 0 || names[port.Name] {
			t.Errorf("a zero or duplicate port in %v", slice.Ports)
		}
		names[port.Name] = true
		if port.Name != "" {
			checkLabel(t, port.Name)
		}
	}
	for _, endpoint := range slice.Endpoints {
		if !isUnicast(endpoint.Addr) || model.FamilyOf(endpoint.Addr) != slice.Family {
			t.Errorf("endpoint %v of an EndpointSlice is not a unicast %v address", endpoint.Addr, slice.Family)
		}
		checkLocation(t, endpoint)
	}
	for _, hostname := range slice.Hostnames {
		if hostname != "" {
			checkLabel(t, hostname)
		}
	}
	checkFindings(t, "EndpointSlice", slice.Name, slice.Findings)
}

func checkLocation(t *testing.T, endpoint model.SliceEndpoint) {
	t.Helper()
	if endpoint.Node != "" {
		checkSubdomain(t, endpoint.Node)
	}
	for _, node := range endpoint.HintNodes {
		checkSubdomain(t, node)
	}
	for _, zone := range append([]string{endpoint.Zone}, endpoint.HintZones...) {
		if messages := validation.IsValidLabelValue(zone); len(messages) > 0 {
			t.Errorf("zone %q: %v", zone, messages)
		}
	}
	const maxHints = 8 // in Kubernetes' validation
	if len(endpoint.HintNodes) > maxHints || len(endpoint.HintZones) > maxHints {
		t.Errorf("hints for %d nodes and %d zones, want at most %d each", len(endpoint.HintNodes), len(endpoint.HintZones), maxHints)
	}
}

// CheckNode checks the guarantees of package model for a Node. nil means that there is none.
func CheckNode(t *testing.T, node *model.Node) {
	t.Helper()
	if node == nil {
		return
	}
	checkSubdomain(t, node.Name)
	checkOnePerFamily(t, node.Addresses, model.FamilyOf)
	for _, addr := range node.Addresses {
		if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
			t.Errorf("invalid address %s of a node", addr)
		}
	}
	CheckPrefixes(t, node.PodCIDRs)
	checkOnePerFamily(t, node.PodCIDRs, model.FamilyOfPrefix)
}

// CheckServiceCIDR checks the guarantees of package model for the ranges of a ServiceCIDR.
func CheckServiceCIDR(t *testing.T, prefixes []netip.Prefix) {
	t.Helper()
	CheckPrefixes(t, prefixes)
	checkOnePerFamily(t, prefixes, model.FamilyOfPrefix)
	for _, prefix := range prefixes {
		if prefix.Bits() == 0 {
			t.Errorf("range %s contains every address", prefix)
		}
	}
}
