package explain

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Query selects one Service, one of its ports, or a dialled address. The zero Query selects everything.
type Query struct {
	// AddrPort is an address and a port; then the other fields are empty. Zero means that no address is dialled.
	AddrPort netip.AddrPort
	// Service is the selected Service; without a name, all in its namespace.
	Service model.ObjectName
	// Port is a port's name or number, as in the argument; empty means every port.
	Port string
}

// dnsLabel matches a DNS label of Kubernetes (RFC 1123), as the names of namespaces, Services and their ports are.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// IsName reports whether a name is valid for a namespace, a Service or a port.
func IsName(name string) bool { return dnsLabel.MatchString(name) }

// ParseQuery parses NAMESPACE/NAME or NAMESPACE/NAME:PORT, where PORT is a port's name or number. Without NAMESPACE it
// uses the given default, if that is not empty.
func ParseQuery(arg, defaultNamespace string) (Query, error) {
	namespace, rest, found := strings.Cut(arg, "/")
	switch {
	case !found && defaultNamespace == "":
		return Query{}, queryError(arg, "the namespace is missing, as in default/%s", arg)
	case !found:
		namespace, rest = defaultNamespace, arg
	}
	name, port, hasPort := strings.Cut(rest, ":")
	query := Query{Service: model.ObjectName{Namespace: namespace, Name: name}, Port: port}
	switch {
	case !dnsLabel.MatchString(namespace):
		return Query{}, queryError(arg, "%q is not a namespace's name", namespace)
	case !dnsLabel.MatchString(name):
		return Query{}, queryError(arg, "%q is not a Service's name", name)
	case hasPort && !dnsLabel.MatchString(port):
		return Query{}, queryError(arg, "%q is neither a port's name nor its number", port)
	}
	return query, nil
}

// ParseFrontend parses ADDRESS:PORT, or [ADDRESS]:PORT over IPv6.
func ParseFrontend(arg string) (query Query, ok bool) {
	dialled, err := netip.ParseAddrPort(arg)
	if err != nil {
		return Query{}, false
	}
	return Query{AddrPort: netip.AddrPortFrom(dialled.Addr().Unmap(), dialled.Port())}, true
}

func queryError(arg, format string, args ...any) error {
	return fmt.Errorf("query %q is not NAMESPACE/NAME[:PORT]: %s", arg, fmt.Sprintf(format, args...))
}

// Covers reports whether the query selects a Service, or one of its ports.
func (q Query) Covers(service model.ObjectName) bool {
	namespace, name := q.Service.Namespace, q.Service.Name
	return (namespace == "" || namespace == service.Namespace) && (name == "" || name == service.Name)
}

// Match reports whether the query selects a port that has this identity and number.
//
// In Kubernetes a port may be named "80" and have the number 443, so a number is compared with both. Several protocols
// may have the same port number, so a query may match several ports.
func (q Query) Match(id model.PortID, number uint16) bool {
	if q == (Query{}) {
		return true
	}
	if !q.Covers(id.Service) {
		return false
	}
	return q.Port == "" || q.Port == id.Port || q.Port == strconv.Itoa(int(number))
}

// matchesPort reports whether the query selects a port: by its name, or because the dialled address leads to it.
func (q Query) matchesPort(decision selection.Decision, dialled dialledAddress) bool {
	if q.AddrPort.IsValid() {
		return dialled.reachesPort(decision)
	}
	return q.Match(decision.Service.PortID(decision.Port, decision.Family), decision.Port.Port)
}
