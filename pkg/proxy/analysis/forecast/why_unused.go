package forecast

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// unused explains endpoints that are in the Service's EndpointSlices but not in the port: each slice gives the reason.
func (w *whyQuery) unused(decision selection.Decision, target string) []EndpointExplanation {
	var explanations []EndpointExplanation
	for _, object := range w.slicesOf[w.service] {
		slice, errs := convert.EndpointSlice(object, w.view)
		if slice == nil || len(errs) > 0 {
			continue // it is rejected, which is reported elsewhere
		}
		reason := explain.UnusedReason(slice, decision)
		for i := range object.Endpoints {
			endpoint := &object.Endpoints[i]
			index := w.addressIndex(endpoint, target)
			if reason == (explain.UnusedSlice{}) || index < 0 || index == 0 && reason.Reason == explain.ReasonLaterAddresses {
				continue
			}
			explanation := w.newExplanation(decision)
			explanation.Endpoint, explanation.EndpointNode, explanation.Pod = endpoint.Addresses[index],
				ptr.Deref(endpoint.NodeName, ""), podOf(endpoint)
			explanation.Reason, explanation.Message, explanation.isUnused = reason.Reason, reason.Message, true
			explanations = append(explanations, explanation)
		}
	}
	return explanations
}

// addressIndex returns the index of the target address in an entry of a slice, or 0 if the target is the entry's pod or
// node; -1 if it is neither.
func (w *whyQuery) addressIndex(endpoint *discoveryv1.Endpoint, target string) int {
	if len(endpoint.Addresses) > 0 && target != "" && (target == podOf(endpoint) || target == ptr.Deref(endpoint.NodeName, "")) {
		return 0
	}
	targetAddr, err := netip.ParseAddr(target)
	if withPort, parseErr := netip.ParseAddrPort(target); parseErr == nil {
		targetAddr, err = withPort.Addr(), nil
	}
	return slices.IndexFunc(endpoint.Addresses, func(text string) bool {
		addr, parseErr := netip.ParseAddr(text)
		return text == target || err == nil && parseErr == nil && addr == targetAddr
	})
}

func podOf(endpoint *discoveryv1.Endpoint) string {
	if endpoint.TargetRef == nil || endpoint.TargetRef.Kind != "Pod" {
		return ""
	}
	return endpoint.TargetRef.Name
}
