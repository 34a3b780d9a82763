package dns

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Records are what is answered about one Service: to its own name, and to the name of each of its ports. Whatever takes
// more work than writing an answer is done once, when they are made: an answer looks nothing up for each of its
// records.
type Records struct {
	own   answers
	ports map[portName]*answers
	// alike are all addresses of each name that several endpoints share, such as a pod with a hostname and an address of
	// each family.
	alike map[string][]netip.Addr
}

// portName is a port by its name, and by its protocol in small letters.
type portName struct{ name, protocol string }

// answers are what is answered to one name.
type answers struct {
	addresses [model.IPv6 + 1]merged // A and AAAA
	services  merged                 // SRV
}

// merged are lists of targets, one after the other. Each target makes one record, and no two targets make the same (RFC
// 2181, 5).
type merged struct {
	lists []targets
	count int // of all targets
	// weighed is how many SRV records share 100 %, as in CoreDNS: it weighs each endpoint of each port, and merges equal
	// records only then.
	weighed int
}

// targets are endpoints that clients are told of.
type targets struct {
	list []target
	// until holds cumulative weights: how often a target, or one before it, comes first in an answer, out of the last
	// one's number; nil: all are equal. This is how DNS carries a bound on the load: most clients take the first address.
	until []uint32
}

type target struct {
	addr netip.AddrPort
	// hostname is what the endpoint is called below the Service; empty: its address with dashes.
	hostname string
}

// NewRecords turns the decisions about a headless Service into its records in a zone: nil if no endpoint is ready
// anywhere, or if the Service is not headless. Then the cluster's DNS answers.
func NewRecords(decisions []selection.Decision, zone Zone) *Records {
	if len(decisions) == 0 || !decisions[0].Service.IsHeadless {
		return nil
	}
	making := newMaking(&decisions[0], zone)
	isReady := false
	for i := range decisions {
		isReady = isReady || decisions[i].Selection.Anywhere
		making.add(&decisions[i])
	}
	if !isReady {
		return nil
	}
	making.mergePorts()
	if making.hasHostnames {
		making.records.alike = addressesOfNames(decisions)
	}
	return &making.records
}

// addressesOfNames returns the addresses of each name that has several.
func addressesOfNames(decisions []selection.Decision) map[string][]netip.Addr {
	type named struct {
		name string
		addr netip.Addr
	}
	all, seen := map[string][]netip.Addr{}, map[named]bool{}
	for i := range decisions {
		for _, one := range targetsOf(&decisions[i]).list {
			record := named{one.name(), one.addr.Addr()}
			if !seen[record] {
				seen[record] = true
				all[record.name] = append(all[record.name], record.addr)
			}
		}
	}
	maps.DeleteFunc(all, func(_ string, addrs []netip.Addr) bool { return len(addrs) < 2 })
	return all
}

// making are Records that are being made.
type making struct {
	records Records
	ports   []*answers // in the order of the Service's
	// longest is how long the name of an endpoint may be, so that it still is a DNS name with the rest after it.
	longest int
	// hasHostnames: several endpoints may share a name.
	hasHostnames bool
	// seen are the SRV records that are made already.
	seen map[serviceRecord]bool
}

// serviceRecord is what an SRV record says to one name.
type serviceRecord struct {
	of *answers
	// hostname is the endpoint's name if some endpoints have hostnames. Otherwise the address says the same.
	hostname string
	addr     netip.AddrPort
}

func newMaking(decision *selection.Decision, zone Zone) *making {
	return &making{
		records: Records{ports: map[portName]*answers{}},
		longest: longestName - len(zone.below(decision.Service.Name)),
		seen:    map[serviceRecord]bool{}, hasHostnames: len(decision.Hostnames) > 0,
	}
}

func (m *making) add(decision *selection.Decision) {
	chosen := targetsOf(decision)
	own := &m.records.own
	if decision.IsOfAddresses {
		own.addresses[decision.Family].add(chosen)
		return
	}
	own.addresses[decision.Family].share(chosen.list)
	port := m.port(portName{decision.Port.Name, lower(decision.Port.Protocol.String())})
	port.services.add(chosen.only(func(one target) bool { return m.isNew(port, one) }))
	port.services.weighed += len(chosen.list)
	var last netip.Addr
	port.addresses[decision.Family].add(chosen.only(func(one target) bool { // they come in the order of their addresses
		before := last
		last = one.addr.Addr()
		return last != before
	}))
}

func (m *making) port(name portName) *answers {
	port := m.records.ports[name]
	if port == nil {
		port = &answers{}
		m.records.ports[name] = port
		m.ports = append(m.ports, port)
	}
	return port
}

// isNew reports whether an endpoint makes an SRV record that is not in the list yet.
func (m *making) isNew(of *answers, one target) bool {
	if m.longest < longestLabel && len(one.name()) > m.longest {
		return false
	}
	record := serviceRecord{of: of, addr: one.addr}
	switch {
	case m.hasHostnames:
		record.hostname, record.addr = one.name(), netip.AddrPortFrom(netip.Addr{}, one.addr.Port())
	case of != &m.records.own:
		return true // each of a port has an address and number of its own
	}
	isNew := !m.seen[record]
	m.seen[record] = true
	return isNew
}

// mergePorts has the Service's own name stand for all ports: several may have the same number.
func (m *making) mergePorts() {
	if len(m.ports) == 1 {
		m.records.own.services = m.ports[0].services
		return
	}
	own, all := &m.records.own, 0
	for _, port := range m.ports {
		all += port.services.count
	}
	m.seen = make(map[serviceRecord]bool, all)
	for _, port := range m.ports {
		own.services.weighed += port.services.weighed
		for _, list := range port.services.lists {
			own.services.add(list.only(func(one target) bool { return m.isNew(own, one) }))
		}
	}
}

func targetsOf(decision *selection.Decision) targets {
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

// name is an endpoint's name below the Service: its hostname, or its address with dashes, as in CoreDNS
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

func (m *merged) add(list targets) {
	if len(list.list) > 0 {
		m.lists, m.count = append(m.lists, list), m.count+len(list.list)
	}
}

// share replaces a list by another one with the same addresses: most Services have one port, and the second list of its
// endpoints need not be kept.
func (m *merged) share(list []target) {
	if len(m.lists) == 1 && slices.EqualFunc(m.lists[0].list, list, target.isOfSameAddress) {
		m.lists[0].list = list
	}
}

func (t target) isOfSameAddress(other target) bool { return t.addr.Addr() == other.addr.Addr() }

// only returns the targets that are wanted: the same list, if that is all of them.
func (t targets) only(isWanted func(target) bool) targets {
	left, isWhole := targets{}, true
	for i, one := range t.list {
		switch wanted := isWanted(one); {
		case wanted && !isWhole:
			left.append(one, t, i)
		case !wanted && isWhole:
			isWhole = false
			for k := range i {
				left.append(t.list[k], t, k)
			}
		}
	}
	if isWhole {
		return t
	}
	return left
}

// append adds a target that is number i of others.
func (t *targets) append(one target, of targets, i int) {
	t.list = append(t.list, one)
	if of.until != nil {
		before := uint32(0)
		if len(t.until) > 0 {
			before = t.until[len(t.until)-1]
		}
		t.until = append(t.until, before+of.slots(i))
	}
}

// first returns which target comes first in an answer; the others follow in their order. draw returns a random number
// below its argument.
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

// slots is how often one of them comes first, where a bound on the load says so.
func (t targets) slots(i int) uint32 {
	if i == 0 {
		return t.until[0]
	}
	return t.until[i] - t.until[i-1]
}

// weight is that of an SRV record: as CoreDNS gives it to each of so many, or what a bound on the load gives.
func (t targets) weight(i, all int) uint16 {
	if t.until == nil {
		return uint16(max(1, 100/all))
	}
	return uint16(min(t.slots(i), 1<<16-1))
}
