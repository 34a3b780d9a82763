package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// maxUnused limits the EndpointSlices that are listed for one port: a Service may have thousands of EndpointSlices
// and of ports.
const maxUnused = 20

// The reasons why endpoints of an EndpointSlice, or with ReasonLaterAddresses some of their addresses, are not used.
const (
	reasonFQDN           = "SliceOfNames"
	reasonHeadless       = "SliceOfHeadless"
	reasonOtherFamily    = "SliceOfOtherFamily"
	reasonNoPorts        = "SliceWithoutPorts"
	reasonOtherPorts     = "SliceOfOtherPorts"
	ReasonLaterAddresses = "LaterAddresses"
)

// serviceSlices are the EndpointSlices of a Service, and what all of its ports have in common.
type serviceSlices struct {
	families []string
	slices   []sliceEntry
	// skipped is the number of EndpointSlices beyond the maximum of a Service.
	skipped int
}

type sliceEntry struct {
	*model.EndpointSlice
	// serves reports whether the slice has one of the Service's ports.
	serves bool
}

func newServiceSlices(cluster *model.Cluster, service *model.Service) serviceSlices {
	all := cluster.SlicesOf(service.Name)
	counted, _ := model.LimitSlices(all)
	s := serviceSlices{families: familiesOf(service), skipped: len(all) - len(counted)}
	ports := portNamesOf(service.Ports...)
	for _, slice := range counted {
		s.slices = append(s.slices, sliceEntry{slice, ports.anyIn(slice)})
	}
	return s
}

// complete completes the explanation of a port.
func (s serviceSlices) complete(port *PortReport, decision selection.Decision) {
	var more int
	port.UnusedSlices, more = s.unused(decision)
	if more > 0 {
		port.Warnings = append(port.Warnings,
			sanitize.CountOf(more, "more EndpointSlice has", "more EndpointSlices have")+" no effect on this port.")
	}
	if s.skipped > 0 {
		port.Warnings = append(port.Warnings, fmt.Sprintf(
			"%s skipped: those of a Service can list at most %d ports in total.",
			sanitize.CountOf(s.skipped, "EndpointSlice is", "EndpointSlices are"), model.MaxSlicePorts))
	}
	if len(s.slices)+s.skipped == 0 {
		port.Warnings = append(port.Warnings, fmt.Sprintf("No EndpointSlice in the namespace %s has the label kubernetes.io/service-name=%s.",
			decision.Service.Name.Namespace, decision.Service.Name.Name))
	}
}

// unused returns the EndpointSlices that have no effect on a port, and why. A slice that serves another port of the
// Service is normal, unless no slice serves this port.
func (s serviceSlices) unused(decision selection.Decision) (list []UnusedSlice, more int) {
	for i := range s.slices {
		slice := &s.slices[i]
		reason := unusedReason(slice.EndpointSlice, decision, s.families, slice.serves && len(decision.Endpoints) > 0)
		switch {
		case reason == UnusedSlice{}:
		case len(list) == maxUnused:
			more++
		default:
			list = append(list, reason)
		}
	}
	return list, more
}

// UnusedReason returns why a slice of a Service has no effect on a port, or why some addresses of its endpoints have
// none; zero if all are used.
func UnusedReason(slice *model.EndpointSlice, decision selection.Decision) UnusedSlice {
	return unusedReason(slice, decision, familiesOf(decision.Service), portNamesOf(decision.Port).anyIn(slice))
}

func unusedReason(slice *model.EndpointSlice, decision selection.Decision, families []string, serves bool) UnusedSlice {
	count := max(len(slice.Endpoints), int(slice.FQDNCount))
	newUnused := func(code, format string, args ...any) UnusedSlice {
		message := "EndpointSlice " + slice.Name.String() + " has " + fmt.Sprintf(format, args...) + "."
		return UnusedSlice{Slice: slice.Name.String(), Endpoints: count, Reason: code, Message: message}
	}
	endpoints, family := sanitize.Count(count, "endpoint"), slice.Family.String()
	servesPort := decision.ForAddresses || serves
	switch {
	case count == 0: // an empty slice needs no explanation
		return UnusedSlice{}
	case slice.IsHeadless && !decision.Service.IsHeadless:
		return newUnused(reasonHeadless, "%s, but the label service.kubernetes.io/headless, so no proxy reads it", endpoints)
	case slice.FQDNCount > 0:
		return newUnused(reasonFQDN, "%s, but by name (addressType FQDN), and a proxy sends connections only to addresses", endpoints)
	case !slices.Contains(families, family):
		return newUnused(reasonOtherFamily, "%s, but the Service has no %s address, only %s",
			sanitize.Count(count, family+" endpoint"), family, strings.Join(families, " and "))
	case slice.Family != decision.Family:
		return UnusedSlice{}
	case !servesPort && len(slice.Ports) == 0:
		return newUnused(reasonNoPorts, "%s, but no ports, which does not mean every port", endpoints)
	case !servesPort && decision.Port.Name == "":
		return newUnused(reasonOtherPorts, "%s, but no %s port without a name; it has %s", endpoints, decision.Port.Protocol,
			listPorts(slice.Ports))
	case !servesPort:
		return newUnused(reasonOtherPorts, "%s, but no port named %s/%s; it has %s",
			endpoints, decision.Port.Name, decision.Port.Protocol, listPorts(slice.Ports))
	}
	// Further addresses would be the same endpoint by another name (KEP-752).
	switch slice.MultiAddressCount {
	case 0:
		return UnusedSlice{}
	case 1:
		return newUnused(ReasonLaterAddresses, "an endpoint with more than one address, and only the first one is used; "+
			"another endpoint needs an entry of its own")
	}
	return newUnused(ReasonLaterAddresses, "%d endpoints with more than one address, and only the first one of each is used; "+
		"another endpoint needs an entry of its own", slice.MultiAddressCount)
}

// familiesOf returns the families in which EndpointSlices can serve a Service.
func familiesOf(service *model.Service) []string {
	var families []string
	for _, family := range model.Families {
		if _, has := service.ClusterIP(family); has || service.IsHeadless {
			families = append(families, family.String())
		}
	}
	return families
}

// portNames are ports by name and protocol, whatever their numbers.
type portNames map[model.SlicePort]bool

func portNamesOf(ports ...model.ServicePort) portNames {
	names := make(portNames, len(ports))
	for _, port := range ports {
		names[model.SlicePort{Name: port.Name, Protocol: port.Protocol}] = true
	}
	return names
}

// anyIn reports whether a slice has one of the ports.
func (n portNames) anyIn(slice *model.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Ports, func(port model.SlicePort) bool {
		port.Port = 0
		return n[port]
	})
}

// listPorts lists the ports of a slice, which may have 20,000.
func listPorts(ports []model.SlicePort) string {
	const limit = 4
	var words []string
	for _, port := range ports[:min(len(ports), limit)] {
		word := fmt.Sprintf("%d/%s without a name", port.Port, port.Protocol)
		if port.Name != "" {
			word = fmt.Sprintf("%s %d/%s", port.Name, port.Port, port.Protocol)
		}
		words = append(words, word)
	}
	if more := len(ports) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), more)
	}
	return strings.Join(words, ", ")
}
