package explain

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Query asks for one Service, or for one of its ports. The zero Query asks for everything.
type Query struct {
	Service model.ObjectName
	// Port is a port's name or its number, as it was written; empty for every port.
	Port string
}

// label is Kubernetes' DNS label (RFC 1123). Namespaces, Services and their ports are all named by one.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ParseQuery reads NAMESPACE/NAME or NAMESPACE/NAME:PORT, where PORT is a port's name or number.
func ParseQuery(arg string) (Query, error) {
	namespace, rest, found := strings.Cut(arg, "/")
	if !found {
		return Query{}, malformed(arg, "the namespace is missing, as in default/%s", arg)
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

func malformed(arg, format string, args ...any) error {
	return fmt.Errorf("query %q is not NAMESPACE/NAME[:PORT]: %s", arg, fmt.Sprintf(format, args...))
}

// Match reports whether the query asks for a port that has this identity and number.
//
// Kubernetes lets a port be named "80" and serve 443, so a number is compared with both; and one number may serve
// several protocols, so a query may match several ports.
func (q Query) Match(id model.PortID, number uint16) bool {
	if q == (Query{}) {
		return true
	}
	if q.Service != id.Service {
		return false
	}
	return q.Port == "" || q.Port == id.Port || q.Port == strconv.Itoa(int(number))
}
