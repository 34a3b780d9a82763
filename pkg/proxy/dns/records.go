package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Records are what is answered about one Service.
type Records struct {
	// addresses are those of each family, and ports the Service's ports with theirs.
	addresses map[model.Family]targets
	ports     []port
}

// port is a port of a Service: that of the endpoints has a number, which may differ from one to the other.
type port struct {
	name, protocol string // the protocol in small letters
	targets        map[model.Family]targets
}

// targets are endpoints that clients are told of.
type targets struct {
	list []target
	// until has for each of them how often it or one before it comes first in an answer, of the last one's number; nil:
	// each as often as any other. It is how DNS carries a bound on the load: most clients take the first address.
	until []uint32
}

type target struct {
	addr netip.AddrPort
	// hostname is what the endpoint is called below the Service; empty: its address with dashes.
	hostname string
}

// NewRecords makes of the decisions about a headless Service what is answered about it: nil if no endpoint is ready
// anywhere, or if the Service is no headless one. Then the cluster's DNS says what it says.
func NewRecords(decisions []selection.Decision) *Records {
	if len(decisions) == 0 || !decisions[0].Service.IsHeadless {
		return nil
	}
	records := &Records{addresses: map[model.Family]targets{}}
	isReady := false
	for i := range decisions {
		decision := &decisions[i]
		isReady = isReady || decision.Selection.Anywhere
		chosen := newTargets(decision)
		if decision.IsOfAddresses {
			records.addresses[decision.Family] = chosen
		} else {
			records.add(decision, chosen)
		}
	}
	if !isReady {
		return nil
	}
	return records
}

func (r *Records) add(decision *selection.Decision, chosen targets) {
	if all := r.addresses[decision.Family]; slices.EqualFunc(all.list, chosen.list, target.isOfSameAddress) {
		r.addresses[decision.Family] = chosen // most Services have one port: no second list of the same addresses
	}
	name, protocol := decision.Port.Name, strings.ToLower(decision.Port.Protocol.String())
	at := slices.IndexFunc(r.ports, func(p port) bool { return p.name == name && p.protocol == protocol })
	if at < 0 {
		at = len(r.ports)
		r.ports = append(r.ports, port{name: name, protocol: protocol, targets: map[model.Family]targets{}})
	}
	r.ports[at].targets[decision.Family] = chosen
}

func newTargets(decision *selection.Decision) targets {
	choice := decision.Selection.Cluster
	all := targets{list: make([]target, len(choice.Endpoints))}
	for i := range choice.Endpoints {
		addr := choice.Endpoints[i].Addr
		all.list[i] = target{addr: addr, hostname: decision.Hostnames[addr.Addr()]}
	}
	if choice.Slots != nil {
		all.until = make([]uint32, len(choice.Slots))
		sum := uint32(0)
		for i, slots := range choice.Slots {
			sum += uint32(slots)
			all.until[i] = sum
		}
	}
	return all
}

func (t target) isOfSameAddress(other target) bool {
	return t.addr.Addr() == other.addr.Addr() && t.hostname == other.hostname
}

// name is what an endpoint is called below the Service: its hostname, or its address with dashes, as CoreDNS calls it
// (plugin/kubernetes, endpointHostname).
func (t target) name() string {
	if t.hostname != "" {
		return t.hostname
	}
	addr := t.addr.Addr()
	if addr.Is4() {
		return strings.ReplaceAll(addr.String(), ".", "-")
	}
	name := strings.ReplaceAll(addr.String(), ":", "-")
	if strings.HasSuffix(name, "-") { // no label ends with a dash
		name += "0"
	}
	return name
}

// first returns which of them comes first in an answer, and the rest follows in their order. draw returns a number below
// another one, by chance.
func (t targets) first(draw func(uint32) uint32) int {
	if len(t.list) < 2 {
		return 0
	}
	if t.until == nil {
		return int(draw(uint32(len(t.list))))
	}
	drawn := draw(t.until[len(t.until)-1])
	at, _ := slices.BinarySearch(t.until, drawn+1)
	return at
}

// weight is that of an SRV record: as CoreDNS gives it to each of so many, or what a bound on the load gives.
func (t targets) weight(i, all int) uint16 {
	if t.until == nil {
		return uint16(max(1, 100/all))
	}
	slots := t.until[i]
	if i > 0 {
		slots -= t.until[i-1]
	}
	return uint16(min(slots, 1<<16-1))
}
