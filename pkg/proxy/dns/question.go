package dns

import (
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// question is what a query asks of a Service.
type question struct {
	service model.ObjectName
	// port and protocol are those of _port._protocol.service.…; both empty for the Service's own name.
	port, protocol string
}

// parseName reads a name below a domain, "svc.cluster.local." in small letters: "web.shop.svc.cluster.local." or
// "_http._tcp.web.shop.svc.cluster.local.". No other name is one of ours; those of single endpoints are identities,
// and nobody may choose among them.
func parseName(name, domain string) (question, bool) {
	labels, isBelow := strings.CutSuffix(strings.ToLower(name), "."+domain)
	if !isBelow {
		return question{}, false
	}
	switch parts := strings.Split(labels, "."); {
	case len(parts) == 2:
		return question{service: model.ObjectName{Namespace: parts[1], Name: parts[0]}}, true
	case len(parts) == 4 && len(parts[0]) > 1 && len(parts[1]) > 1 && parts[0][0] == '_' && parts[1][0] == '_':
		return question{
			service: model.ObjectName{Namespace: parts[3], Name: parts[2]}, port: parts[0][1:], protocol: parts[1][1:],
		}, true
	}
	return question{}, false
}

// families are the types that ask for addresses.
var families = map[dnsmessage.Type]model.Family{dnsmessage.TypeA: model.IPv4, dnsmessage.TypeAAAA: model.IPv6}

// found is what there is to answer to a question: lists of targets, one after the other, with who has to say their port.
type found struct {
	lists []targets
	count int // of all targets
}

// find returns what there is for a question of a type. It returns false for a port that the Service does not have: the
// cluster's DNS says so.
func (r *Records) find(asked question, typ dnsmessage.Type) (found, bool) {
	var all found
	if family, isAddress := families[typ]; isAddress && asked.port == "" {
		all.add(r.addresses[family])
		return all, true
	}
	isKnown := asked.port == ""
	for _, port := range r.ports {
		if asked.port != "" && (port.name != asked.port || port.protocol != asked.protocol) {
			continue
		}
		isKnown = true
		for _, family := range model.Families {
			if wanted, isAddress := families[typ]; !isAddress || wanted == family {
				all.add(port.targets[family])
			}
		}
	}
	return all, isKnown
}

func (f *found) add(list targets) {
	if len(list.list) > 0 {
		f.lists, f.count = append(f.lists, list), f.count+len(list.list)
	}
}
