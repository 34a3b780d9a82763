package rules

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// EndpointSlice is a discovery.k8s.io/v1 EndpointSlice.
type EndpointSlice struct {
	Metadata    Metadata `json:"metadata"`
	AddressType string   `json:"addressType"`
	Ports       []struct {
		Name     string  `json:"name"`
		Protocol string  `json:"protocol"`
		Port     *uint16 `json:"port"` // nil: every port, which proxies do not know
	} `json:"ports"`
	Endpoints []struct {
		Addresses []string `json:"addresses"`
	} `json:"endpoints"`
}

// headlessSliceLabel is the label that makes every proxy ignore an EndpointSlice (k8s.io/api/core/v1,
// IsHeadlessService).
const headlessSliceLabel = "service.kubernetes.io/headless"

// words are what a slice says about whom it serves.
func (e *EndpointSlice) words() policy.SliceWords {
	words := policy.SliceWords{
		Name: e.Metadata.Namespace + "/" + e.Metadata.Name, AddressType: e.AddressType, Endpoints: len(e.Endpoints),
	}
	_, words.IsHeadless = e.Metadata.Labels[headlessSliceLabel]
	for _, endpoint := range e.Endpoints {
		if len(endpoint.Addresses) > 1 {
			words.Crowded++
		}
	}
	for _, port := range e.Ports {
		if port.Port != nil {
			words.Ports = append(words.Ports, policy.PortWords{Name: port.Name, Protocol: orTCP(port.Protocol), Number: *port.Port})
		}
	}
	return words
}

// servicePorts is what a Service, as written, says about its ports and families.
type servicePorts struct {
	Spec struct {
		Ports []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
		IPFamilies     []string `json:"ipFamilies"`
		IPFamilyPolicy string   `json:"ipFamilyPolicy"`
	} `json:"spec"`
}

func orTCP(protocol string) string {
	if protocol == "" {
		return "TCP"
	}
	return protocol
}

// words are the ports.
func (p *servicePorts) words() []policy.PortWords {
	ports := make([]policy.PortWords, 0, len(p.Spec.Ports))
	for _, port := range p.Spec.Ports {
		ports = append(ports, policy.PortWords{Name: port.Name, Protocol: orTCP(port.Protocol)})
	}
	return ports
}

// families are those in which the Service has addresses, or will have: all of them while that is open.
func (p *servicePorts) families(spec *ServiceSpec) []string {
	families := []string{}
	for _, addr := range clusterIPs(spec.ClusterIP, spec.ClusterIPs) {
		families = append(families, familyOf(addr))
	}
	isSingle := p.Spec.IPFamilyPolicy == "" || p.Spec.IPFamilyPolicy == "SingleStack"
	switch {
	case len(families) > 0:
		return families
	case isSingle && len(p.Spec.IPFamilies) > 0:
		return p.Spec.IPFamilies
	}
	return []string{ipv4, ipv6}
}

const ipv4, ipv6 = "IPv4", "IPv6"

func familyOf(addr netip.Addr) string {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// clusterIPs returns those values of a Service's address fields that are addresses.
func clusterIPs(first string, all []string) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range append([]string{first}, all...) {
		if addr, err := netip.ParseAddr(text); err == nil && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// uselessSlices: EndpointSlices of the Service whose endpoints, or some of whose addresses, it does not use. They can
// be judged only if the Service's text is known.
func uselessSlices(s *subject) (violations []Violation) {
	var written servicePorts
	if len(s.facts.Slices) == 0 || s.isHeadless() || s.isExternalName() || json.Unmarshal(s.Written, &written) != nil {
		return nil
	}
	ports, families := written.words(), written.families(&s.Spec)
	wanted, unserved := policy.NewWanted(ports...), unservedPorts(ports, s.facts.Slices)
	for _, slice := range s.facts.Slices {
		words := slice.words()
		report := func(path *field.Path, why policy.Unused) {
			if why != (policy.Unused{}) && len(violations) <= MaxReported { // more than are reported are not needed
				detail := strings.TrimSuffix(why.Sentence, ".")
				violations = append(violations, violationOf(errorOf(field.ErrorTypeInvalid, path, "", detail), words.Name+" "+why.Code))
			}
		}
		switch why := words.WhyUnreachable(false, families); {
		case why != policy.Unused{}:
			report(field.NewPath("spec"), why)
			continue
		case len(ports) > 0 && !words.Serves(wanted):
			report(field.NewPath("spec", "ports").Index(0), words.WhyNot(ports[0]))
		default:
			for _, i := range unserved {
				report(field.NewPath("spec", "ports").Index(i), words.WhyNot(ports[i]))
			}
		}
		report(field.NewPath("spec"), words.WhyCrowded())
	}
	return violations
}

// unservedPorts are the numbers of the ports that no slice has.
func unservedPorts(ports []policy.PortWords, all []*EndpointSlice) (unserved []int) {
	var offered []policy.PortWords
	for _, slice := range all {
		offered = append(offered, slice.words().Ports...)
	}
	isOffered := policy.NewWanted(offered...)
	for i, port := range ports {
		if !isOffered[port] {
			unserved = append(unserved, i)
		}
	}
	return unserved
}
