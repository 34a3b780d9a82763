package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// SliceWords is what an EndpointSlice says about whom it serves, in the words of the API.
type SliceWords struct {
	Name        string // namespace/name
	AddressType string // IPv4, IPv6 or AddressTypeFQDN
	Endpoints   int
	// IsHeadless: it has the label service.kubernetes.io/headless, which makes proxies ignore it.
	IsHeadless bool
	// Crowded is how many of the endpoints have more than one address.
	Crowded int
	Ports   []PortWords
}

// AddressTypeFQDN is the type of slices that have names instead of addresses.
const AddressTypeFQDN = "FQDN"

// ZoneInSlices is why an EndpointSlice may lack the zone of a Node, or have an old one, and what changes that.
const ZoneInSlices = "EndpointSlices keep the zone that a Node had when they were written, until the Service or its pods change"

// PortWords is a port of a Service or of an EndpointSlice. Those of the same name and protocol belong together, whatever
// their numbers.
type PortWords struct {
	Name     string
	Protocol string
	Number   uint16
}

// Unused is why endpoints of an EndpointSlice are not used. The zero value: they are.
type Unused struct {
	// Code is stable, safe to alert on.
	Code string
	// Sentence names the slice.
	Sentence string
}

// Why endpoints of an EndpointSlice are not used.
const (
	SliceOfNames       = "SliceOfNames"
	SliceOfHeadless    = "SliceOfHeadless"
	SliceOfOtherFamily = "SliceOfOtherFamily"
	SliceWithoutPorts  = "SliceWithoutPorts"
	SliceOfOtherPorts  = "SliceOfOtherPorts"
	LaterAddresses     = "LaterAddresses"
)

// Wanted are some ports in a form for searching: their numbers do not matter.
type Wanted map[PortWords]bool

// NewWanted returns ports to look for.
func NewWanted(ports ...PortWords) Wanted {
	wanted := make(Wanted, len(ports))
	for _, port := range ports {
		port.Number = 0
		wanted[port] = true
	}
	return wanted
}

// Serves reports whether a slice has one of some ports.
func (s SliceWords) Serves(wanted Wanted) bool {
	return slices.ContainsFunc(s.Ports, func(port PortWords) bool {
		port.Number = 0
		return wanted[port]
	})
}

// WhyUnreachable returns why a Service with addresses of some families, headless or not, cannot use a slice, whatever its
// ports. It is used if it has no endpoints: there is nothing to miss.
func (s SliceWords) WhyUnreachable(isHeadless bool, families []string) Unused {
	switch {
	case s.Endpoints == 0:
	case s.IsHeadless && !isHeadless:
		return s.unused(SliceOfHeadless, "%s, but the label service.kubernetes.io/headless, with which no proxy reads it", s.endpoints(""))
	case s.AddressType == AddressTypeFQDN:
		return s.unused(SliceOfNames, "%s, but by name (addressType FQDN), and a proxy sends connections to addresses alone", s.endpoints(""))
	case !slices.Contains(families, s.AddressType):
		return s.unused(SliceOfOtherFamily, "%s, but the Service has no %s address, only %s",
			s.endpoints(s.AddressType), s.AddressType, strings.Join(families, " and "))
	}
	return Unused{}
}

// WhyNot returns why a slice without a port of its name and protocol does not serve a Service port.
func (s SliceWords) WhyNot(port PortWords) Unused {
	switch {
	case s.Endpoints == 0:
		return Unused{}
	case len(s.Ports) == 0:
		return s.unused(SliceWithoutPorts, "%s, but no ports, which does not mean every port", s.endpoints(""))
	}
	return s.unused(SliceOfOtherPorts, "%s, but no %s; it has %s", s.endpoints(""), port.wanted(), offered(s.Ports))
}

// WhyCrowded returns why some addresses of a slice are not used although their endpoints are (KEP-752: further
// addresses would be the same endpoint by another name).
func (s SliceWords) WhyCrowded() Unused {
	switch s.Crowded {
	case 0:
		return Unused{}
	case 1:
		return s.unused(LaterAddresses, "an endpoint with more than one address, and only the first one is used; "+
			"another endpoint is an entry of its own")
	}
	return s.unused(LaterAddresses, "%d endpoints with more than one address, and only the first one of each is used; "+
		"another endpoint is an entry of its own", s.Crowded)
}

func (s SliceWords) unused(code, format string, args ...any) Unused {
	return Unused{code, "EndpointSlice " + s.Name + " has " + fmt.Sprintf(format, args...) + "."}
}

// endpoints counts them: "2 endpoints", "1 IPv6 endpoint".
func (s SliceWords) endpoints(family string) string {
	return printable.Count(s.Endpoints, strings.TrimSpace(family+" endpoint"))
}

func (p PortWords) wanted() string {
	if p.Name == "" {
		return p.Protocol + " port without a name"
	}
	return "port named " + p.Name + "/" + p.Protocol
}

// offered lists the ports of a slice, which may have 20,000.
func offered(ports []PortWords) string {
	const most = 4
	var words []string
	for _, port := range ports[:min(len(ports), most)] {
		word := fmt.Sprintf("%d/%s without a name", port.Number, port.Protocol)
		if port.Name != "" {
			word = fmt.Sprintf("%s %d/%s", port.Name, port.Number, port.Protocol)
		}
		words = append(words, word)
	}
	if more := len(ports) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), more)
	}
	return strings.Join(words, ", ")
}
