package dns

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Zone is the zone that a server serves.
type Zone struct {
	// Domain is the cluster's domain, such as "cluster.local".
	Domain string
	// TTL is how long a response may be cached, in whole seconds.
	TTL time.Duration
}

// services returns the suffix of all served names: "svc.cluster.local." in lower case.
func (z Zone) services() string { return "svc." + z.name() }

// below returns the suffix of the names of a Service's endpoints: ".web.shop.svc.cluster.local.".
func (z Zone) below(service model.ObjectName) string {
	return "." + service.Name + "." + service.Namespace + "." + z.services()
}

func (z Zone) name() string { return lower(strings.TrimSuffix(z.Domain, ".")) + "." }

func (z Zone) seconds() uint32 { return uint32(z.TTL / time.Second) }

// Transport is the protocol of a query; it limits the size of the response.
type Transport int

// The transports.
const (
	UDP Transport = iota
	TCP
)

// Maximum lengths of messages. Over UDP a client announces its limit; otherwise it is 512 bytes (RFC 1035). Larger
// messages than 1232 bytes may be lost (DNS flag day 2020).
const (
	maxTCP         = 1<<16 - 1
	minUDP         = 512
	maxUDP         = 1232
	maxQueryLength = 4096
)

// Outcome is the outcome of a query.
type Outcome string

// The outcomes.
const (
	Answered  Outcome = "answered"  // with at least one record
	Empty     Outcome = "empty"     // the name is served here, but has no record of that type on this node
	Refused   Outcome = "refused"   // another server may have the name
	Malformed Outcome = "malformed" // or not a query
)

// Result is a query's outcome and its type: "A", "AAAA", "SRV" or "other".
type Result struct {
	Type    string
	Outcome Outcome
}

// queryTypes are the types with records, by name.
var queryTypes = map[dnsmessage.Type]string{dnsmessage.TypeA: "A", dnsmessage.TypeAAAA: "AAAA", dnsmessage.TypeSRV: "SRV"}

// responseBuilder builds a response.
type responseBuilder struct {
	zone    Zone
	header  dnsmessage.Header
	query   parsedQuery // zero if no question could be parsed
	edns    bool
	badEDNS bool // an unknown EDNS version
	limit   int
	// alike maps the names that several SRV targets share to all their addresses.
	alike map[string][]netip.Addr
}

// Answer returns the response to a query. lookup returns the Records of a Service; nil means that the Service is not
// served here. randN returns a random number below its argument. Answer returns nil for a message that is too short for
// a header, and for one that is itself a response: otherwise two servers would exchange messages forever.
func (z Zone) Answer(
	query []byte, transport Transport, lookup func(model.ObjectName) *Records, draw func(uint32) uint32,
) (answer []byte, result Result) {
	result = Result{Type: "other", Outcome: Malformed}
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil, result
	}
	d := &responseBuilder{zone: z, header: dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
		CheckingDisabled: header.CheckingDisabled,
	}, limit: minUDP}
	if header.OpCode != 0 {
		return d.fail(dnsmessage.RCodeNotImplemented), result
	}
	var isOne bool
	if d.query, isOne = parseQuery(query); !isOne || parser.SkipQuestion() != nil {
		return d.fail(dnsmessage.RCodeFormatError), result
	}
	size, err := d.readEDNS(&parser)
	if err != nil {
		return d.fail(dnsmessage.RCodeFormatError), result
	}
	d.limit = min(max(size, minUDP), maxUDP)
	if transport == TCP {
		d.limit = maxTCP
	}
	if d.badEDNS {
		return d.fail(dnsmessage.RCodeSuccess), result
	}
	if name, isOurs := queryTypes[d.query.Type]; isOurs {
		result.Type = name
	}
	answer, result.Outcome = d.answer(transport, lookup, draw)
	return answer, result
}

var errTwoOPT = errors.New("more than one OPT record")

// readEDNS returns the message size that a client accepts; 0 if it does not announce one (RFC 6891).
func (d *responseBuilder) readEDNS(parser *dnsmessage.Parser) (size int, err error) {
	if err := errors.Join(parser.SkipAllQuestions(), parser.SkipAllAnswers(), parser.SkipAllAuthorities()); err != nil {
		return 0, err
	}
	for {
		header, err := parser.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return size, nil
		}
		if err == nil && header.Type == dnsmessage.TypeOPT {
			if d.edns {
				return 0, errTwoOPT
			}
			d.edns, d.badEDNS, size = true, header.TTL>>16&0xff != 0, int(header.Class)
		}
		// A record whose header the library cannot parse may be well-formed: its name has a label with a dot.
		if err := parser.SkipAdditional(); err != nil {
			return 0, err
		}
	}
}

// answer returns the response to a well-formed query.
func (d *responseBuilder) answer(transport Transport, lookup func(model.ObjectName) *Records, draw func(uint32) uint32) ([]byte, Outcome) {
	typ := d.query.Type
	name, isBelow := parseName(d.query.Name.String(), d.zone.services()) // the name is empty if one of its labels contains a dot
	if _, isOurs := queryTypes[typ]; !isOurs || !isBelow || d.query.Class != dnsmessage.ClassINET {
		return d.fail(dnsmessage.RCodeRefused), Refused
	}
	records := lookup(name.service)
	if records == nil {
		return d.fail(dnsmessage.RCodeRefused), Refused
	}
	all, isKnown := records.find(name, typ)
	switch {
	case !isKnown:
		return d.fail(dnsmessage.RCodeRefused), Refused
	case all.count == 0:
		return d.empty(), Empty
	}
	d.alike = records.alike
	return d.write(transport, name.service, all, draw), Answered
}

// fail returns a response with a code and no record. The question is repeated as received, because the library cannot
// write a label with a dot.
func (d *responseBuilder) fail(code dnsmessage.RCode) []byte {
	d.header.RCode = code
	message := d.finish(dnsmessage.NewBuilder(make([]byte, 0, minUDP), d.header), nil)
	if len(message) < headerSize || d.query.raw == nil {
		return message
	}
	binary.BigEndian.PutUint16(message[4:], 1)
	return slices.Insert(message, headerSize, d.query.raw...)
}

// empty returns the response that the name exists but has no record of this type. The SOA record has the TTL of this
// fact (RFC 2308). With the longest name and domain, the response has less than 512 bytes.
func (d *responseBuilder) empty() []byte {
	d.header.Authoritative = true
	return d.build(d.addSOA)
}

func (d *responseBuilder) addSOA(builder *dnsmessage.Builder) error {
	zone := d.zone.name()
	name, err := dnsmessage.NewName(zone)
	if err != nil {
		return err
	}
	ns, nsErr := dnsmessage.NewName("ns.dns." + zone)
	mbox, mboxErr := dnsmessage.NewName("hostmaster." + zone)
	if err := errors.Join(nsErr, mboxErr, builder.StartAuthorities()); err != nil {
		return err
	}
	return builder.SOAResource(
		dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: d.zone.seconds()},
		// As in CoreDNS, except for the serial number: there are no zone transfers from here.
		dnsmessage.SOAResource{NS: ns, MBox: mbox, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: d.zone.seconds()},
	)
}

// build writes a message about a served name: the question, the records that add writes, and the OPT record.
func (d *responseBuilder) build(add func(*dnsmessage.Builder) error) []byte {
	builder := dnsmessage.NewBuilder(make([]byte, 0, minUDP), d.header)
	builder.EnableCompression()
	err := errors.Join(builder.StartQuestions(), builder.Question(d.query.Question))
	return d.finish(builder, errors.Join(err, add(&builder)))
}

// finish completes a message, with the OPT record if the client uses EDNS.
func (d *responseBuilder) finish(builder dnsmessage.Builder, err error) []byte {
	if d.edns {
		err = errors.Join(err, d.addOPT(&builder))
	}
	message, finished := builder.Finish()
	if err != nil || finished != nil {
		return nil // cannot happen: names and counts were checked
	}
	return message
}

func (d *responseBuilder) addOPT(builder *dnsmessage.Builder) error {
	// The section may have been started already.
	if err := builder.StartAdditionals(); err != nil && !errors.Is(err, dnsmessage.ErrSectionDone) {
		return err
	}
	var header dnsmessage.ResourceHeader
	code := d.header.RCode
	if d.badEDNS {
		code = rcodeBadVersion
	}
	if err := header.SetEDNS0(maxUDP, code, false); err != nil {
		return err
	}
	return builder.OPTResource(header, dnsmessage.OPTResource{})
}

// rcodeBadVersion is BADVERS of RFC 6891, whose upper bits are in the OPT record.
const rcodeBadVersion dnsmessage.RCode = 16
