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
	nameOverhead = 2 // the first label's length and the root, in addition to a name's characters
)

// resourceRecord is a record to be written, with its target.
type resourceRecord struct {
	target
	weight     uint16
	targetName string // the target name of an SRV record
	size       int    // of the record itself, in bytes
}

// write builds a response with as many records as fit, starting at a random one. If not all fit over UDP, the client
// retries over TCP; if not all fit there, the response is partial.
func (b *responseBuilder) write(transport Transport, service model.ObjectName, all rrset, randN func(uint32) uint32) []byte {
	b.header.Authoritative = true
	remaining := b.limit - headerSize - len(b.query.raw)
	if b.edns {
		remaining -= sizeOfOPT
	}
	var records []resourceRecord
	isComplete, suffix := true, b.zone.endpointSuffix(service)
	for entry := range all.rotated(randN) {
		record := b.newRecord(entry, all.weightedCount, suffix)
		if remaining -= record.size; remaining < 0 {
			isComplete = false
			break
		}
		records = append(records, record)
	}
	b.header.Truncated = !isComplete && transport == UDP
	return b.build(func(builder *dnsmessage.Builder) error {
		if err := b.addAnswers(builder, records); err != nil || !isComplete || b.query.Type != dnsmessage.TypeSRV {
			return err
		}
		return b.addAddresses(builder, records, remaining)
	})
}

// rrsetEntry is one target of a list.
type rrsetEntry struct {
	targets
	index int
}

// rotated yields all targets, starting at a random one.
func (r rrset) rotated(randN func(uint32) uint32) func(yield func(rrsetEntry) bool) {
	return func(yield func(rrsetEntry) bool) {
		firstList := 0
		if len(r.lists) > 1 {
			firstList = int(randN(uint32(len(r.lists))))
		}
		for i := range r.lists {
			list := r.lists[(firstList+i)%len(r.lists)]
			first := list.pickFirst(randN)
			for k := range list.list {
				index := (first + k) % len(list.list)
				if !yield(rrsetEntry{list, index}) {
					return
				}
			}
		}
	}
}

// newRecord returns the record of an entry. weightedCount is the number of SRV records that share the total weight.
func (b *responseBuilder) newRecord(e rrsetEntry, weightedCount int, suffix string) resourceRecord {
	record := resourceRecord{target: e.list[e.index]}
	switch b.query.Type {
	case dnsmessage.TypeA:
		record.size = sizeOfA
	case dnsmessage.TypeAAAA:
		record.size = sizeOfAAAA
	default:
		record.weight = e.weight(e.index, weightedCount)
		record.targetName = record.name() + suffix
		record.size = sizeOfSRV + len(record.targetName) + nameOverhead - 1
	}
	return record
}

func (b *responseBuilder) addAnswers(builder *dnsmessage.Builder, records []resourceRecord) error {
	header := dnsmessage.ResourceHeader{Name: b.query.Name, Class: dnsmessage.ClassINET, TTL: b.zone.seconds()}
	err := builder.StartAnswers()
	for i := range records {
		if err != nil {
			return err
		}
		if b.query.Type == dnsmessage.TypeSRV {
			err = builder.SRVResource(header, dnsmessage.SRVResource{
				Weight: records[i].weight, Port: records[i].addr.Port(), Target: nameOf(records[i].targetName),
			})
			continue
		}
		err = addAddress(builder, header, records[i].addr.Addr())
	}
	return err
}

// addAddresses adds the addresses of SRV records' targets, if all of them fit.
func (b *responseBuilder) addAddresses(builder *dnsmessage.Builder, records []resourceRecord, remaining int) error {
	for i := range records {
		for _, addr := range b.addressesOf(&records[i]) {
			size := sizeOfAAAA
			if addr.Is4() {
				size = sizeOfA
			}
			if remaining -= size + records[i].size; remaining < 0 { // an uncompressed name is shorter than the SRV record
				return nil
			}
		}
	}
	seen := make(map[string]bool, len(records))
	err := builder.StartAdditionals()
	for i := range records {
		if seen[records[i].targetName] {
			continue // the same endpoint, at another port
		}
		seen[records[i].targetName] = true
		header := dnsmessage.ResourceHeader{Name: nameOf(records[i].targetName), Class: dnsmessage.ClassINET, TTL: b.zone.seconds()}
		for _, addr := range b.addressesOf(&records[i]) {
			err = errors.Join(err, addAddress(builder, header, addr))
		}
	}
	return err
}

// addressesOf returns all addresses of an SRV record's target: a record set must not be partial (RFC 2181, 5).
func (b *responseBuilder) addressesOf(r *resourceRecord) []netip.Addr {
	if addrs := b.sharedNames[r.name()]; addrs != nil {
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

// nameOf converts a target's name for the library. It always fits: a target whose name is too long has no SRV record.
func nameOf(text string) (name dnsmessage.Name) {
	name.Length = uint8(copy(name.Data[:], text))
	return name
}
