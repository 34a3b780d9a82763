package xds

import (
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// portRef is a Service port in a resource's name, identified by its number. Its protocol is TCP.
type portRef struct {
	service model.ObjectName
	number  uint16
}

// name returns the most common form of the resource's name.
func (p portRef) name(domain string) string {
	return p.service.Name + "." + p.service.Namespace + ".svc." + domain + ":" + strconv.Itoa(int(p.number))
}

// maxNameLength is the maximum length of a resource's name, in bytes: the names of a Service, a namespace and a domain,
// with separators.
const maxNameLength = maxLabelLength + maxLabelLength + 253 + 32

// parseName returns the Service port in a resource's name, in the forms that clients of Istio and of plain gRPC use:
// SERVICE.NAMESPACE:PORT, with or without .svc and the cluster's domain after the namespace, and
// outbound|PORT||SERVICE.NAMESPACE.svc.DOMAIN. The name of a Service alone would need the client's namespace, which
// requests do not contain.
func parseName(name, domain string) (portRef, bool) {
	host, port, ok := cutPort(name)
	if !ok {
		return portRef{}, false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || port[0] == '0' || port[0] == '+' {
		return portRef{}, false
	}
	host = strings.TrimSuffix(host, ".")
	if below, isInDomain := strings.CutSuffix(host, ".svc."+domain); isInDomain {
		host = below
	} else {
		host = strings.TrimSuffix(host, ".svc")
	}
	service, namespace, _ := strings.Cut(host, ".")
	if !isLabel(service) || !isLabel(namespace) {
		return portRef{}, false
	}
	return portRef{model.ObjectName{Namespace: namespace, Name: service}, uint16(number)}, true
}

// maxLabelLength is the maximum length of the name of a Service or a namespace.
const maxLabelLength = 63

// isLabel reports whether a text is a valid name of a Service or a namespace.
func isLabel(text string) bool {
	isOther := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return text != "" && len(text) <= maxLabelLength && strings.IndexFunc(text, isOther) < 0
}

// cutPort separates a name into host and port.
func cutPort(name string) (host, port string, ok bool) {
	if rest, isIstioForm := strings.CutPrefix(name, "outbound|"); isIstioForm {
		port, host, ok = strings.Cut(rest, "||") // a subset could be between the bars, but there are none here
		return host, port, ok
	}
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}
