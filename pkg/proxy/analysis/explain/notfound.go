package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NotFound returns an error that origin has no Service of a name, or no port of it, with a suggestion.
func NotFound(cluster *model.Cluster, query Query, origin string) error {
	if query.AddrPort.IsValid() {
		return fmt.Errorf("no Service in %s is reached at %s: it is neither a ClusterIP or external address with that port, nor a node port "+
			"on loopback or on an address that the Node lists; the proxy does not handle connections there", origin, query.AddrPort)
	}
	if query.Service.Name == "" {
		return NamespaceNotFound(query.Service.Namespace, cluster.ServiceNames(), origin)
	}
	if service := cluster.Service(query.Service); service != nil {
		return fmt.Errorf("service %s has no port %s; it has %s", query.Service, query.Port, portList(service))
	}
	return ServiceNotFound(query.Service, cluster.ServiceNames(), " in "+origin)
}

// ServiceNotFound returns an error that there is no Service of a name, with a suggestion: a similar name, or the same
// name in another namespace. where is appended to the name, and starts with a space.
func ServiceNotFound(name model.ObjectName, existing []model.ObjectName, where string) error {
	known := make([]string, 0, len(existing))
	for _, candidate := range existing {
		known = append(known, candidate.String())
	}
	slices.Sort(known)
	return fmt.Errorf("service %s not found%s%s", name, where, DidYouMean(name.String(), known))
}

func portList(service *model.Service) string {
	var ports []string
	for _, port := range service.Ports {
		ports = append(ports, strings.TrimSpace(fmt.Sprintf("%s %d/%s", port.Name, port.Port, port.Protocol)))
	}
	return strings.Join(ports, ", ")
}

// NamespaceNotFound returns an error that there are no Services in a namespace, with a suggestion.
func NamespaceNotFound(namespace string, existing []model.ObjectName, origin string) error {
	known := make([]string, 0, len(existing))
	for _, name := range existing {
		known = append(known, name.Namespace)
	}
	slices.Sort(known)
	return fmt.Errorf("there is no Service in the namespace %s of %s%s", namespace, origin, DidYouMean(namespace, known))
}

// DidYouMean returns the end of a sentence about an unknown name, with a similar known name; empty if there is none.
func DidYouMean(name string, known []string) string {
	if similar := policy.Suggest(name, known...); similar != "" {
		return fmt.Sprintf("; did you mean %s?", similar)
	}
	return ""
}
