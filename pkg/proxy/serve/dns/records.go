package dns

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Records are the records of one Service: of its own name, and of the name of each of its ports. All work beyond
// writing a response is done once, when they are built: a response needs no lookup per record.
type Records struct {
	service recordSets
	ports   map[portName]*recordSets
	// alike maps each name that several endpoints share to all its addresses, such as a pod with a hostname and an
	// address of each family.
	alike map[string][]netip.Addr
}

// portName is the name of a port, and its protocol in lower case.
type portName struct{ name, protocol string }

// recordSets are the record sets of one name.
type recordSets struct {
	addresses [model.IPv6 + 1]rrset // A and AAAA
	services  rrset                 // SRV
}

// rrset consists of lists of targets, in order. Each target has one record, and no two targets have the same one (RFC
// 2181, 5).
type rrset struct {
	lists []targets
	count int // number of all targets
	// weighed is the number of SRV records that share 100 %, as in CoreDNS: it assigns a weight to each endpoint of
	// each port, and only then merges equal records.
	weighed int
}

// targets are endpoints that responses contain.
type targets struct {
	list []target
	// until holds cumulative weights: how often a target, or one before it, comes first in a response, out of the
	// last value; nil if all are equal. This is how DNS implements a load bound: most clients use the first address.
	until []uint32
}

type target struct {
	addr netip.AddrPort
	// hostname is the endpoint's name below the Service; if empty, the name is its address with dashes.
	hostname string
}

// NewRecords returns the records of a headless Service in a zone, from its decisions. It returns nil if no endpoint is
// ready anywhere, or if the Service is not headless; then the cluster's DNS answers.
func NewRecords(decisions []selection.Decision, zone Zone) *Records {
	if len(decisions) == 0 || !decisions[0].Service.IsHeadless {
		return nil
	}
	making := newRecordsBuilder(&decisions[0], zone)
	isReady := false
	for i := range decisions {
		isReady = isReady || decisions[i].Selection.HasUsableEndpoint
		making.add(&decisions[i])
	}
	if !isReady {
		return nil
	}
	making.mergePortsIntoName()
	if making.hasHostnames {
		making.records.alike = sharedHostnames(decisions)
	}
	return &making.records
}

// sharedHostnames returns the addresses of each name that has several.
func sharedHostnames(decisions []selection.Decision) map[string][]netip.Addr {
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

// recordsBuilder builds Records.
type recordsBuilder struct {
	records Records
	ports   []*recordSets // in the order of the Service's ports
	// maxTargetLength is the maximum length of an endpoint's name, so that it is a valid DNS name with the Service's
	// suffix.
	maxTargetLength int
	// hasHostnames is set if several endpoints may share a name.
	hasHostnames bool
	// seen are the SRV records that exist already.
	seen map[serviceRecord]bool
}

// serviceRecord is the content of an SRV record of one name.
type serviceRecord struct {
	of *recordSets
	// hostname is the endpoint's name, if some endpoints have hostnames. Otherwise the address identifies the endpoint.
	hostname string
	addr     netip.AddrPort
}

func newRecordsBuilder(decision *selection.Decision, zone Zone) *recordsBuilder {
	return &recordsBuilder{
		records:         Records{ports: map[portName]*recordSets{}},
		maxTargetLength: maxNameLength - len(zone.below(decision.Service.Name)),
		seen:            map[serviceRecord]bool{}, hasHostnames: len(decision.Hostnames) > 0,
	}
}

func (m *recordsBuilder) add(decision *selection.Decision) {
	chosen := targetsOf(decision)
	own := &m.records.service
	if decision.IsOfAddresses {
		own.addresses[decision.Family].add(chosen)
		return
	}
	own.addresses[decision.Family].dedupe(chosen.list)
	port := m.port(portName{decision.Port.Name, lower(decision.Port.Protocol.String())})
	port.services.add(chosen.only(func(one target) bool { return m.isNew(port, one) }))
	port.services.weighed += len(chosen.list)
	var last netip.Addr
	port.addresses[decision.Family].add(chosen.only(func(one target) bool { // endpoints are sorted by address
		before := last
		last = one.addr.Addr()
		return last != before
	}))
}

func (m *recordsBuilder) port(name portName) *recordSets {
	port := m.records.ports[name]
	if port == nil {
		port = &recordSets{}
		m.records.ports[name] = port
		m.ports = append(m.ports, port)
	}
	return port
}

// isNew reports whether an endpoint has an SRV record that is not in the list yet.
func (m *recordsBuilder) isNew(of *recordSets, one target) bool {
	if m.maxTargetLength < maxLabelLength && len(one.name()) > m.maxTargetLength {
		return false
	}
	record := serviceRecord{of: of, addr: one.addr}
	switch {
	case m.hasHostnames:
		record.hostname, record.addr = one.name(), netip.AddrPortFrom(netip.Addr{}, one.addr.Port())
	case of != &m.records.service:
		return true // each endpoint of a port has its own address and port number
	}
	isNew := !m.seen[record]
	m.seen[record] = true
	return isNew
}

// mergePortsIntoName adds the SRV records of all ports to the Service's own name, without duplicates: several ports may
// have the same number.
func (m *recordsBuilder) mergePortsIntoName() {
	if len(m.ports) == 1 {
		m.records.service.services = m.ports[0].services
		return
	}
	own, all := &m.records.service, 0
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

// name returns an endpoint's name below the Service: its hostname, or its address with dashes, as in CoreDNS
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
	if strings.HasSuffix(name, "-") { // a label must not end with a dash
		name += "0"
	}
	return name
}

func (m *rrset) add(list targets) {
	if len(list.list) > 0 {
		m.lists, m.count = append(m.lists, list), m.count+len(list.list)
	}
}

// dedupe replaces a list by another one with the same addresses: most Services have one port, and then only one list of
// its endpoints is retained.
func (m *rrset) dedupe(list []target) {
	if len(m.lists) == 1 && slices.EqualFunc(m.lists[0].list, list, target.sameAddr) {
		m.lists[0].list = list
	}
}

func (t target) sameAddr(other target) bool { return t.addr.Addr() == other.addr.Addr() }

// only returns the targets for which isWanted returns true. It returns the same list if that is all of them.
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

// append appends target i of another list.
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

// pickFirst returns the index of the target that comes first in a response; the others follow in order. randN returns
// a random number below its argument.
func (t targets) pickFirst(draw func(uint32) uint32) int {
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

// slots returns how often a target comes first, under a load bound.
func (t targets) slots(i int) uint32 {
	if i == 0 {
		return t.until[0]
	}
	return t.until[i] - t.until[i-1]
}

// weight returns the weight of an SRV record: CoreDNS' value for one of all records, or the target's slots under a load
// bound.
func (t targets) weight(i, all int) uint16 {
	if t.until == nil {
		return uint16(max(1, 100/all))
	}
	return uint16(min(t.slots(i), 1<<16-1))
}
