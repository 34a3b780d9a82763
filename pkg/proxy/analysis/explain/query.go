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

// Query asks for one Service, or for one of its ports, or for what is dialled. The zero Query asks for everything.
type Query struct {
	// Dialled is an address and a port; then the other fields are empty. Zero: no address is asked for.
	Dialled netip.AddrPort
	// Service is the Service asked for; without a name, all in its namespace.
	Service model.ObjectName
	// Port is a port's name or its number, as it was written; empty for every port.
	Port string
}

// label is Kubernetes' DNS label (RFC 1123). Namespaces, Services and their ports are all named by one.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// IsName reports whether a namespace, a Service or a port can be called so.
func IsName(name string) bool { return label.MatchString(name) }

// ParseQuery reads NAMESPACE/NAME or NAMESPACE/NAME:PORT, where PORT is a port's name or number. Without NAMESPACE the
// given default applies, if there is one.
func ParseQuery(arg, usual string) (Query, error) {
	namespace, rest, found := strings.Cut(arg, "/")
	switch {
	case !found && usual == "":
		return Query{}, malformed(arg, "the namespace is missing, as in default/%s", arg)
	case !found:
		namespace, rest = usual, arg
	}
	name, port, hasPort := strings.Cut(rest, ":")
	query := Query{Service: model.ObjectName{Namespace: namespace, Name: name}, Port: port}
	switch {
	case !label.MatchString(namespace):
		return Query{}, malformed(arg, "%q is not a namespace's name", namespace)
	case !label.MatchString(name):
		return Query{}, malformed(arg, "%q is not a Service's name", name)
	case hasPort && !label.MatchString(port):
		return Query{}, malformed(arg, "%q is neither a port's name nor its number", port)
	}
	return query, nil
}

// ParseFrontend reads ADDRESS:PORT, or [ADDRESS]:PORT over IPv6.
func ParseFrontend(arg string) (query Query, isOne bool) {
	dialled, err := netip.ParseAddrPort(arg)
	if err != nil {
		return Query{}, false
	}
	return Query{Dialled: netip.AddrPortFrom(dialled.Addr().Unmap(), dialled.Port())}, true
}

func malformed(arg, format string, args ...any) error {
	return fmt.Errorf("query %q is not NAMESPACE/NAME[:PORT]: %s", arg, fmt.Sprintf(format, args...))
}

// Covers reports whether the query asks for a Service, or for one of its ports.
func (q Query) Covers(service model.ObjectName) bool {
	namespace, name := q.Service.Namespace, q.Service.Name
	return (namespace == "" || namespace == service.Namespace) && (name == "" || name == service.Name)
}

// Match reports whether the query asks for a port that has this identity and number.
//
// Kubernetes lets a port be named "80" and serve 443, so a number is compared with both; and one number may serve
// several protocols, so a query may match several ports.
func (q Query) Match(id model.PortID, number uint16) bool {
	if q == (Query{}) {
		return true
	}
	if !q.Covers(id.Service) {
		return false
	}
	return q.Port == "" || q.Port == id.Port || q.Port == strconv.Itoa(int(number))
}

// matchesPort reports whether the query asks for a port: by its name, or because what is dialled leads to it.
func (q Query) matchesPort(decision selection.Decision, dialled dialled) bool {
	if q.Dialled.IsValid() {
		return dialled.leadsTo(decision)
	}
	return q.Match(decision.Service.PortID(decision.Port, decision.Family), decision.Port.Port)
}
