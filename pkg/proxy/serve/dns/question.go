package dns

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Maximum lengths of names, as text with the final dot, and of labels (RFC 1035, 2.3.4).
const (
	maxNameLength  = 254
	maxLabelLength = 63
)

// parsedQuestion is the parsed question of a query.
type parsedQuestion struct {
	// raw is the question as received; responses repeat it.
	raw []byte
	dnsmessage.Question
	// hasDot is set if a label contains a dot. Such a name is not served here, and Question has no name then.
	hasDot bool
}

// parseQuestion parses the question of a query, which must have exactly one. It rejects only a name whose encoding is
// invalid: another server may have names whose labels contain any bytes.
func parseQuestion(query []byte) (parsedQuestion, bool) {
	if binary.BigEndian.Uint16(query[4:]) != 1 {
		return parsedQuestion{}, false
	}
	rest, text, parsed := query[headerSize:], []byte(nil), parsedQuestion{}
	for {
		if len(rest) == 0 {
			return parsedQuestion{}, false
		}
		size := int(rest[0])
		if rest = rest[1:]; size == 0 {
			break
		}
		if size > maxLabelLength || size > len(rest) { // or a compression pointer, although no name precedes this one
			return parsedQuestion{}, false
		}
		parsed.hasDot = parsed.hasDot || bytes.IndexByte(rest[:size], '.') >= 0
		text = append(append(text, rest[:size]...), '.')
		rest = rest[size:]
	}
	if len(text) > maxNameLength || len(rest) < 4 {
		return parsedQuestion{}, false
	}
	parsed.raw = query[headerSize : len(query)-len(rest)+4]
	parsed.Type = dnsmessage.Type(binary.BigEndian.Uint16(rest))
	parsed.Class = dnsmessage.Class(binary.BigEndian.Uint16(rest[2:]))
	if !parsed.hasDot {
		parsed.Name.Length = uint8(copy(parsed.Name.Data[:], text))
	}
	return parsed, true
}

// lower returns a name in lower case. DNS ignores case for ASCII only (RFC 4343): the Kelvin sign is not a k.
func lower(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return 'A' <= r && r <= 'Z' }) {
		return name
	}
	lowered := []byte(name)
	for i, c := range lowered {
		if 'A' <= c && c <= 'Z' {
			lowered[i] = c + 'a' - 'A'
		}
	}
	return string(lowered)
}

// parsedName is the parsed form of the name in a query.
type parsedName struct {
	service model.ObjectName
	// port is the port in _port._protocol.service.…; empty for the Service's own name.
	port portName
}

// parseName parses a name below a domain, "svc.cluster.local." in lower case: "web.shop.svc.cluster.local." or
// "_http._tcp.web.shop.svc.cluster.local.". Other names are not served: the name of a single endpoint leaves nothing to
// choose.
func parseName(name, domain string) (parsedName, bool) {
	labels, isBelow := strings.CutSuffix(lower(name), "."+domain)
	if !isBelow {
		return parsedName{}, false
	}
	switch parts := strings.Split(labels, "."); {
	case len(parts) == 2:
		return parsedName{service: model.ObjectName{Namespace: parts[1], Name: parts[0]}}, true
	case len(parts) == 4 && len(parts[0]) > 1 && len(parts[1]) > 1 && parts[0][0] == '_' && parts[1][0] == '_':
		return parsedName{
			service: model.ObjectName{Namespace: parts[3], Name: parts[2]}, port: portName{parts[0][1:], parts[1][1:]},
		}, true
	}
	return parsedName{}, false
}

// find returns the records for a parsed name and a type. It returns false if the Service does not have the port: the
// cluster's DNS answers that.
func (r *Records) find(q parsedName, typ dnsmessage.Type) (rrset, bool) {
	sets := &r.serviceSets
	if q.port != (portName{}) {
		if sets = r.ports[q.port]; sets == nil {
			return rrset{}, false
		}
	}
	switch typ {
	case dnsmessage.TypeA:
		return sets.addresses[model.IPv4], true
	case dnsmessage.TypeAAAA:
		return sets.addresses[model.IPv6], true
	default:
		return sets.srv, true
	}
}
