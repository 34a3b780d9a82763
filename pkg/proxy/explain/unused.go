package explain

import (
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// maxUnused bounds the EndpointSlices that are listed for one port: a Service may have thousands of both.
const maxUnused = 20

// slicesOf are the EndpointSlices of a Service, and what is the same for all of its ports.
type slicesOf struct {
	families []string
	slices   []sliceOf
	// leftOut is how many more endpoints there are than a Service can have.
	leftOut int
}

type sliceOf struct {
	policy.SliceWords
	// serves: the Service has one of its ports.
	serves bool
}

func newSlicesOf(cluster *model.Cluster, service *model.Service) slicesOf {
	all := cluster.SlicesOf(service.Name)
	taken, _ := model.Taken(all)
	s := slicesOf{families: familiesOf(service), leftOut: len(all) - len(taken)}
	ports := make([]policy.PortWords, len(service.Ports))
	for i, port := range service.Ports {
		ports[i] = portWords(port)
	}
	wanted := policy.NewWanted(ports...)
	for _, slice := range taken {
		words := sliceWords(slice)
		s.slices = append(s.slices, sliceOf{words, words.Serves(wanted)})
	}
	return s
}

// explain completes the explanation of a port.
func (s slicesOf) explain(port *Port, decision selection.Decision) {
	var more int
	port.UnusedSlices, more = s.unused(decision)
	if more > 0 {
		port.Warnings = append(port.Warnings,
			printable.CountOf(more, "more EndpointSlice does", "more EndpointSlices do")+" nothing for this port.")
	}
	if s.leftOut > 0 {
		port.Warnings = append(port.Warnings, fmt.Sprintf(
			"%s left out: those of a Service can list %d ports in sum.",
			printable.CountOf(s.leftOut, "EndpointSlice is", "EndpointSlices are"), model.MaxOffers))
	}
	if len(s.slices)+s.leftOut == 0 {
		port.Warnings = append(port.Warnings, fmt.Sprintf("No EndpointSlice in the namespace %s has the label kubernetes.io/service-name=%s.",
			decision.Service.Name.Namespace, decision.Service.Name.Name))
	}
}

// unused returns which EndpointSlices do nothing for a port, and why. A slice that serves another port of the Service
// is normal, unless no slice serves this port.
func (s slicesOf) unused(decision selection.Decision) (list []UnusedSlice, more int) {
	for i := range s.slices {
		slice := &s.slices[i]
		why := whyUnused(&slice.SliceWords, decision, s.families, slice.serves && len(decision.Endpoints) > 0)
		switch {
		case why == policy.Unused{}:
		case len(list) == maxUnused:
			more++
		default:
			list = append(list, UnusedSlice{Slice: slice.Name, Endpoints: slice.Endpoints, Reason: why.Code, Message: why.Sentence})
		}
	}
	return list, more
}

// WhyUnused returns why a slice of a Service does nothing for a port, or why some addresses of its endpoints do not.
func WhyUnused(slice *model.EndpointSlice, decision selection.Decision) policy.Unused {
	words := sliceWords(slice)
	return whyUnused(&words, decision, familiesOf(decision.Service), words.Serves(policy.NewWanted(portWords(decision.Port))))
}

func whyUnused(slice *policy.SliceWords, decision selection.Decision, families []string, serves bool) policy.Unused {
	why := slice.WhyUnreachable(decision.Service.IsHeadless, families)
	switch {
	case why != policy.Unused{}, slice.AddressType != decision.Family.String():
		return why
	case !decision.IsOfAddresses && !serves:
		return slice.WhyNot(portWords(decision.Port))
	}
	return slice.WhyCrowded()
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

// sliceWords describes a slice in the words of the API.
func sliceWords(slice *model.EndpointSlice) policy.SliceWords {
	words := policy.SliceWords{
		Name: slice.Name.String(), AddressType: slice.Family.String(), Endpoints: len(slice.Endpoints), Crowded: int(slice.Crowded),
		IsHeadless: slice.IsHeadless, Ports: slices.Grow([]policy.PortWords(nil), len(slice.Ports)),
	}
	if slice.Names > 0 {
		words.AddressType, words.Endpoints = policy.AddressTypeFQDN, int(slice.Names)
	}
	for _, port := range slice.Ports {
		words.Ports = append(words.Ports, policy.PortWords{Name: port.Name, Protocol: port.Protocol.String(), Number: port.Port})
	}
	return words
}

func portWords(port model.ServicePort) policy.PortWords {
	return policy.PortWords{Name: port.Name, Protocol: port.Protocol.String(), Number: port.Port}
}
