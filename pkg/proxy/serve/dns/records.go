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
	serviceSets recordSets
	ports       map[portName]*recordSets
	// sharedNames maps each name that several endpoints share to all its addresses, such as a pod with a hostname and an
	// address of each family.
	sharedNames map[string][]netip.Addr
}

// portName is the name of a port, and its protocol in lower case.
type portName struct{ name, protocol string }

// recordSets are the record sets of one name.
type recordSets struct {
	addresses [model.IPv6 + 1]rrset // A and AAAA
	srv       rrset                 // SRV
}

// rrset consists of lists of targets, in order. Each target has one record, and no two targets have the same one (RFC
// 2181, 5).
type rrset struct {
	lists []targets
	count int // number of all targets
	// weightedCount is the number of SRV records among which a total weight of 100 is divided. As in CoreDNS, it counts
	// each endpoint of each port, even if equal records were merged.
	weightedCount int
}

// targets are endpoints that responses contain.
type targets struct {
	list []target
	// cumulative holds the cumulative weights of the targets; nil if all weights are equal. A target comes first in a
	// response with a probability in proportion to its weight. This is how DNS implements a load bound: most clients use
	// the first address.
	cumulative []uint32
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
	builder := newRecordsBuilder(&decisions[0], zone)
	isReady := false
	for i := range decisions {
		isReady = isReady || decisions[i].Selection.HasUsableEndpoint
		builder.add(&decisions[i])
	}
	if !isReady {
		return nil
	}
	builder.mergePortsIntoName()
	if builder.hasHostnames {
		builder.records.sharedNames = sharedHostnames(decisions)
	}
	return &builder.records
}

// sharedHostnames returns the addresses of each name that has several.
func sharedHostnames(decisions []selection.Decision) map[string][]netip.Addr {
	type nameAndAddr struct {
		name string
		addr netip.Addr
	}
	all, seen := map[string][]netip.Addr{}, map[nameAndAddr]bool{}
	for i := range decisions {
		for _, t := range targetsOf(&decisions[i]).list {
			record := nameAndAddr{t.name(), t.addr.Addr()}
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
	sets *recordSets
	// hostname is the endpoint's name, if some endpoints have hostnames. Otherwise the address identifies the endpoint.
	hostname string
	addr     netip.AddrPort
}

func newRecordsBuilder(decision *selection.Decision, zone Zone) *recordsBuilder {
	return &recordsBuilder{
		records:         Records{ports: map[portName]*recordSets{}},
		maxTargetLength: maxNameLength - len(zone.endpointSuffix(decision.Service.Name)),
		seen:            map[serviceRecord]bool{}, hasHostnames: len(decision.Hostnames) > 0,
	}
}

func (b *recordsBuilder) add(decision *selection.Decision) {
	chosen := targetsOf(decision)
	serviceSets := &b.records.serviceSets
	if decision.ForAddresses {
		serviceSets.addresses[decision.Family].add(chosen)
		return
	}
	serviceSets.addresses[decision.Family].dedupe(chosen.list)
	port := b.port(portName{decision.Port.Name, lower(decision.Port.Protocol.String())})
	port.srv.add(chosen.filter(func(candidate target) bool { return b.isNew(port, candidate) }))
	port.srv.weightedCount += len(chosen.list)
	var last netip.Addr
	port.addresses[decision.Family].add(chosen.filter(func(candidate target) bool { // endpoints are sorted by address
		previous := last
		last = candidate.addr.Addr()
		return last != previous
	}))
}

func (b *recordsBuilder) port(name portName) *recordSets {
	port := b.records.ports[name]
	if port == nil {
		port = &recordSets{}
		b.records.ports[name] = port
		b.ports = append(b.ports, port)
	}
	return port
}

// isNew reports whether an endpoint has an SRV record that is not in the list yet.
func (b *recordsBuilder) isNew(sets *recordSets, candidate target) bool {
	if b.maxTargetLength < maxLabelLength && len(candidate.name()) > b.maxTargetLength {
		return false
	}
	record := serviceRecord{sets: sets, addr: candidate.addr}
	switch {
	case b.hasHostnames:
		record.hostname, record.addr = candidate.name(), netip.AddrPortFrom(netip.Addr{}, candidate.addr.Port())
	case sets != &b.records.serviceSets:
		return true // each endpoint of a port has its own address and port number
	}
	isNew := !b.seen[record]
	b.seen[record] = true
	return isNew
}

// mergePortsIntoName adds the SRV records of all ports to the Service's own name, without duplicates: several ports may
// have the same number.
func (b *recordsBuilder) mergePortsIntoName() {
	if len(b.ports) == 1 {
		b.records.serviceSets.srv = b.ports[0].srv
		return
	}
	serviceSets, all := &b.records.serviceSets, 0
	for _, port := range b.ports {
		all += port.srv.count
	}
	b.seen = make(map[serviceRecord]bool, all)
	for _, port := range b.ports {
		serviceSets.srv.weightedCount += port.srv.weightedCount
		for _, list := range port.srv.lists {
			serviceSets.srv.add(list.filter(func(candidate target) bool { return b.isNew(serviceSets, candidate) }))
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
		all.cumulative = make([]uint32, len(choice.Slots))
		sum := uint32(0)
		for i, slots := range choice.Slots {
			sum += uint32(slots)
			all.cumulative[i] = sum
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

func (r *rrset) add(list targets) {
	if len(list.list) > 0 {
		r.lists, r.count = append(r.lists, list), r.count+len(list.list)
	}
}

// dedupe replaces the only list by a given one if both have the same addresses, so that two sets share its memory. Most
// Services have one port, and retain only one list of their endpoints then.
func (r *rrset) dedupe(list []target) {
	if len(r.lists) == 1 && slices.EqualFunc(r.lists[0].list, list, target.sameAddr) {
		r.lists[0].list = list
	}
}

func (t target) sameAddr(other target) bool { return t.addr.Addr() == other.addr.Addr() }

// filter returns the targets for which keep returns true. If it does for all targets, filter returns the same list.
func (t targets) filter(keep func(target) bool) targets {
	kept, isUnchanged := targets{}, true
	for i, candidate := range t.list {
		switch isKept := keep(candidate); {
		case isKept && !isUnchanged:
			kept.append(candidate, t, i)
		case !isKept && isUnchanged:
			isUnchanged = false
			for k := range i {
				kept.append(t.list[k], t, k)
			}
		}
	}
	if isUnchanged {
		return t
	}
	return kept
}

// append appends a target, which has index i in the list from.
func (t *targets) append(added target, from targets, i int) {
	t.list = append(t.list, added)
	if from.cumulative != nil {
		before := uint32(0)
		if len(t.cumulative) > 0 {
			before = t.cumulative[len(t.cumulative)-1]
		}
		t.cumulative = append(t.cumulative, before+from.slots(i))
	}
}

// pickFirst returns the index of the target that comes first in a response; the others follow in order. randN returns
// a random number below its argument.
func (t targets) pickFirst(randN func(uint32) uint32) int {
	if len(t.list) < 2 {
		return 0
	}
	if t.cumulative == nil {
		return int(randN(uint32(len(t.list))))
	}
	slot := randN(t.cumulative[len(t.cumulative)-1])
	i, _ := slices.BinarySearch(t.cumulative, slot+1)
	return i
}

// slots returns the weight of a target under a load bound: its number of slots in the kernel's table.
func (t targets) slots(i int) uint32 {
	if i == 0 {
		return t.cumulative[0]
	}
	return t.cumulative[i] - t.cumulative[i-1]
}

// weight returns the weight of an SRV record: with a load bound the target's slots, and otherwise an equal share of 100
// for each of all records, as in CoreDNS.
func (t targets) weight(i, all int) uint16 {
	if t.cumulative == nil {
		return uint16(max(1, 100/all))
	}
	return uint16(min(t.slots(i), 1<<16-1))
}
