package dns

import (
	"errors"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Sizes of records in bytes, with a name that is a pointer to the question (RFC 1035, 3.2.1 and 4.1.4).
const (
	headerSize   = 12
	fixedSize    = 2 + 10 // the pointer; type, class, TTL and length
	sizeOfA      = fixedSize + 4
	sizeOfAAAA   = fixedSize + 16
	sizeOfSRV    = fixedSize + 6 // plus the target, which is not compressed (RFC 2782)
	sizeOfOPT    = 11
	ownNameBytes = 2 // the first label's length and the root, in addition to a name's characters
)

// resourceRecord is a record to be written, with its target.
type resourceRecord struct {
	target
	weight uint16
	owner  string // the target name of an SRV record
	size   int    // size of the record itself
}

// write builds a response with as many records as fit, starting at a random one. If not all fit over UDP, the client
// retries over TCP; if not all fit there, the response is partial.
func (d *responseBuilder) write(transport Transport, service model.ObjectName, all rrset, draw func(uint32) uint32) []byte {
	d.header.Authoritative = true
	room := d.limit - headerSize - len(d.query.raw)
	if d.edns {
		room -= sizeOfOPT
	}
	var records []resourceRecord
	isWhole, below := true, d.zone.below(service)
	for entry := range all.rotated(draw) {
		made := d.newRecord(entry, all.weighed, below)
		if room -= made.size; room < 0 {
			isWhole = false
			break
		}
		records = append(records, made)
	}
	d.header.Truncated = !isWhole && transport == UDP
	return d.build(func(builder *dnsmessage.Builder) error {
		if err := d.addAnswers(builder, records); err != nil || !isWhole || d.query.Type != dnsmessage.TypeSRV {
			return err
		}
		return d.addAddresses(builder, records, room)
	})
}

// rrsetEntry is one target of a list.
type rrsetEntry struct {
	targets
	at int
}

// rotated yields all targets, starting at a random one.
func (m rrset) rotated(draw func(uint32) uint32) func(yield func(rrsetEntry) bool) {
	return func(yield func(rrsetEntry) bool) {
		firstList := 0
		if len(m.lists) > 1 {
			firstList = int(draw(uint32(len(m.lists))))
		}
		for i := range m.lists {
			list := m.lists[(firstList+i)%len(m.lists)]
			first := list.pickFirst(draw)
			for k := range list.list {
				at := (first + k) % len(list.list)
				if !yield(rrsetEntry{list, at}) {
					return
				}
			}
		}
	}
}

// newRecord returns the record of an entry. weightedCount is the number of SRV records that share the total weight.
func (d *responseBuilder) newRecord(e rrsetEntry, weighed int, below string) resourceRecord {
	made := resourceRecord{target: e.list[e.at]}
	switch d.query.Type {
	case dnsmessage.TypeA:
		made.size = sizeOfA
	case dnsmessage.TypeAAAA:
		made.size = sizeOfAAAA
	default:
		made.weight = e.weight(e.at, weighed)
		made.owner = made.name() + below
		made.size = sizeOfSRV + len(made.owner) + ownNameBytes - 1
	}
	return made
}

func (d *responseBuilder) addAnswers(builder *dnsmessage.Builder, records []resourceRecord) error {
	header := dnsmessage.ResourceHeader{Name: d.query.Name, Class: dnsmessage.ClassINET, TTL: d.zone.seconds()}
	err := builder.StartAnswers()
	for i := range records {
		if err != nil {
			return err
		}
		if d.query.Type == dnsmessage.TypeSRV {
			err = builder.SRVResource(header, dnsmessage.SRVResource{
				Weight: records[i].weight, Port: records[i].addr.Port(), Target: nameOf(records[i].owner),
			})
			continue
		}
		err = addAddress(builder, header, records[i].addr.Addr())
	}
	return err
}

// addAddresses adds the addresses of SRV records' targets, if all of them fit.
func (d *responseBuilder) addAddresses(builder *dnsmessage.Builder, records []resourceRecord, room int) error {
	for i := range records {
		for _, addr := range d.addressesOf(&records[i]) {
			size := sizeOfAAAA
			if addr.Is4() {
				size = sizeOfA
			}
			if room -= size + records[i].size; room < 0 { // plus at most this much for the name, if it is written uncompressed
				return nil
			}
		}
	}
	seen := make(map[string]bool, len(records))
	err := builder.StartAdditionals()
	for i := range records {
		if seen[records[i].owner] {
			continue // the same endpoint, at another port
		}
		seen[records[i].owner] = true
		header := dnsmessage.ResourceHeader{Name: nameOf(records[i].owner), Class: dnsmessage.ClassINET, TTL: d.zone.seconds()}
		for _, addr := range d.addressesOf(&records[i]) {
			err = errors.Join(err, addAddress(builder, header, addr))
		}
	}
	return err
}

// addressesOf returns all addresses of an SRV record's target: a record set must not be partial (RFC 2181, 5).
func (d *responseBuilder) addressesOf(r *resourceRecord) []netip.Addr {
	if addrs := d.alike[r.name()]; addrs != nil {
		return addrs
	}
	return []netip.Addr{r.addr.Addr()}
}

func addAddress(builder *dnsmessage.Builder, header dnsmessage.ResourceHeader, addr netip.Addr) error {
	if addr.Is4() {
		return builder.AResource(header, dnsmessage.AResource{A: addr.As4()})
	}
	return builder.AAAAResource(header, dnsmessage.AAAAResource{AAAA: addr.As16()})
}

// nameOf converts a target's name for the library. Every target here has one, because those without have no SRV record.
func nameOf(text string) (name dnsmessage.Name) {
	name.Length = uint8(copy(name.Data[:], text))
	return name
}
