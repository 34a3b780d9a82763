package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// findProxyName finds a Service that is handed to nobody, or from one proxy to another (SVC034). It is about what happens, and so never
// in what was there before.
func findProxyName(before, now *Service) []finding {
	name, labelled := now.Metadata.Labels[policy.ServiceProxyNameLabel]
	isChanged := before == nil
	if before != nil {
		old, wasLabelled := before.Metadata.Labels[policy.ServiceProxyNameLabel]
		isChanged = old != name || wasLabelled != labelled
	}
	var detail string
	switch {
	case !isChanged:
		return nil
	case labelled && name == "":
		detail = "an empty name leaves the Service without a proxy; name one, or remove the label"
	case before != nil:
		detail = "changing the proxy of a live Service interrupts traffic until both proxies resync"
	default:
		return nil
	}
	return []finding{findingOf("SVC034", errorOf(field.ErrorTypeInvalid, label(policy.ServiceProxyNameLabel), name, detail), name)}
}

// findForeignKeys finds topology keys that the Service's proxy does not read (SVC035).
func findForeignKeys(s *subject) []finding {
	if !s.hasKeys || s.isExternalName() || s.isHeadless() || policy.IsHandledBy(s.Metadata.Labels, s.proxyName) {
		return nil
	}
	name, labelled := s.Metadata.Labels[policy.ServiceProxyNameLabel]
	detail := fmt.Sprintf("this Service is handled by proxy %q, which does not read it", Cut(name, maxWord))
	switch {
	case !labelled:
		detail = fmt.Sprintf("this Service is handled by the default proxy, which does not read it; set label %s=%s",
			policy.ServiceProxyNameLabel, s.proxyName)
	case name == "":
		detail = "no proxy handles this Service, because its service-proxy-name is empty"
	}
	return []finding{findingOf("SVC035", errorOf(field.ErrorTypeInvalid, annotation(policy.TopologyKeysAnnotation), s.keysText, detail),
		s.keysText, name)}
}
