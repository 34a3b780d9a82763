package dns

import (
	"errors"
	"strconv"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// What records take, in bytes, with a name that points to the question (RFC 1035, 3.2.1 and 4.1.4).
const (
	headerSize   = 12
	fixedSize    = 2 + 10 // the pointer; type, class, TTL and length
	sizeOfA      = fixedSize + 4
	sizeOfAAAA   = fixedSize + 16
	sizeOfSRV    = fixedSize + 6 // and the target, which nothing compresses (RFC 2782)
	sizeOfOPT    = 11
	ownNameBytes = 2 // the first label's length and the root, besides the letters and dots of a name
)

// record is one that is to be written, with what it is about.
type record struct {
	target
	weight uint16
	name   dnsmessage.Name // of an SRV record's target
	size   int             // of the record itself
}

// write answers with records: as many as fit, from a random one on. What does not fit over UDP is asked for again over
// TCP, and of more than fit there, a part must do.
func (d *draft) write(transport Transport, service model.ObjectName, all found, draw func(uint32) uint32) []byte {
	d.header.Authoritative = true
	room := d.limit - headerSize - (len(d.question.Name.String()) + 1 + 4)
	if d.edns {
		room -= sizeOfOPT
	}
	var records []record
	isWhole, written := true, map[string]bool{}
	for entry := range all.inOrder(draw) {
		made, err := d.newRecord(service, entry)
		if err != nil || written[made.key()] {
			continue // its name is too long to be one, or another port has the same number
		}
		written[made.key()] = true
		if room -= made.size; room < 0 {
			isWhole = false
			break
		}
		records = append(records, made)
	}
	d.header.Truncated = !isWhole && transport == UDP
	return d.build(func(builder *dnsmessage.Builder) error {
		if err := d.addAnswers(builder, records); err != nil || !isWhole || d.question.Type != dnsmessage.TypeSRV {
			return err
		}
		return d.addAddresses(builder, records, room)
	})
}

// entry is a target and its weight.
type entry struct {
	target
	weight uint16
}

// inOrder yields all targets, beginning with one by chance.
func (f found) inOrder(draw func(uint32) uint32) func(yield func(entry) bool) {
	return func(yield func(entry) bool) {
		firstList := 0
		if len(f.lists) > 1 {
			firstList = int(draw(uint32(len(f.lists))))
		}
		for i := range f.lists {
			list := f.lists[(firstList+i)%len(f.lists)]
			first := list.first(draw)
			for k := range list.list {
				at := (first + k) % len(list.list)
				if !yield(entry{list.list[at], list.weight(at, f.count)}) {
					return
				}
			}
		}
	}
}

func (d *draft) newRecord(service model.ObjectName, e entry) (record, error) {
	made := record{target: e.target, weight: e.weight}
	switch d.question.Type {
	case dnsmessage.TypeA:
		made.size = sizeOfA
	case dnsmessage.TypeAAAA:
		made.size = sizeOfAAAA
	default:
		text := e.name() + "." + service.Name + "." + service.Namespace + "." + d.zone.services()
		name, err := dnsmessage.NewName(text)
		if err != nil {
			return record{}, err
		}
		made.name, made.size = name, sizeOfSRV+len(text)+ownNameBytes-1
	}
	return made, nil
}

// key is the same of two records that say the same: an answer has each once (RFC 2181, 5).
func (r *record) key() string {
	if r.name.Length == 0 {
		return string(r.addr.Addr().AsSlice())
	}
	return r.name.String() + strconv.Itoa(int(r.addr.Port()))
}

func (d *draft) addAnswers(builder *dnsmessage.Builder, records []record) error {
	header := dnsmessage.ResourceHeader{Name: d.question.Name, Class: dnsmessage.ClassINET, TTL: d.zone.seconds()}
	err := builder.StartAnswers()
	for i := range records {
		if err != nil {
			return err
		}
		if d.question.Type == dnsmessage.TypeSRV {
			err = builder.SRVResource(header, dnsmessage.SRVResource{
				Weight: records[i].weight, Port: records[i].addr.Port(), Target: records[i].name,
			})
			continue
		}
		err = addAddress(builder, header, records[i].target)
	}
	return err
}

// addAddresses adds the addresses of SRV records' targets, if there is room for all of them.
func (d *draft) addAddresses(builder *dnsmessage.Builder, records []record, room int) error {
	seen := make(map[dnsmessage.Name]bool, len(records))
	for i := range records {
		size := sizeOfAAAA
		if records[i].addr.Addr().Is4() {
			size = sizeOfA
		}
		room -= size + records[i].size // the name at most, which may be written anew
	}
	if room < 0 {
		return nil
	}
	err := builder.StartAdditionals()
	for i := range records {
		if seen[records[i].name] {
			continue // the same endpoint, at another port
		}
		seen[records[i].name] = true
		header := dnsmessage.ResourceHeader{Name: records[i].name, Class: dnsmessage.ClassINET, TTL: d.zone.seconds()}
		err = errors.Join(err, addAddress(builder, header, records[i].target))
	}
	return err
}

func addAddress(builder *dnsmessage.Builder, header dnsmessage.ResourceHeader, t target) error {
	if addr := t.addr.Addr(); addr.Is4() {
		return builder.AResource(header, dnsmessage.AResource{A: addr.As4()})
	}
	return builder.AAAAResource(header, dnsmessage.AAAAResource{AAAA: t.addr.Addr().As16()})
}
