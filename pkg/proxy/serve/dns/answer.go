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

// serviceSuffix returns the suffix of all served names: "svc.cluster.local." in lower case.
func (z Zone) serviceSuffix() string { return "svc." + z.name() }

// endpointSuffix returns the suffix of the names of a Service's endpoints: ".web.shop.svc.cluster.local.".
func (z Zone) endpointSuffix(service model.ObjectName) string {
	return "." + service.Name + "." + service.Namespace + "." + z.serviceSuffix()
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
	Malformed Outcome = "malformed" // the message is malformed, or not a query
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
	query   parsedQuestion // zero if no question could be parsed
	edns    bool
	badEDNS bool // an unknown EDNS version
	limit   int
	// sharedNames maps the names that several SRV targets share to all their addresses.
	sharedNames map[string][]netip.Addr
}

// Answer returns the response to a query. lookup returns the Records of a Service; nil means that the Service is not
// served here. randN returns a random number below its argument. Answer returns nil for a message that is too short for
// a header, and for one that is itself a response: otherwise two servers would exchange messages forever.
func (z Zone) Answer(
	query []byte, transport Transport, lookup func(model.ObjectName) *Records, randN func(uint32) uint32,
) (answer []byte, result Result) {
	result = Result{Type: "other", Outcome: Malformed}
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil, result
	}
	b := &responseBuilder{zone: z, header: dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
		CheckingDisabled: header.CheckingDisabled,
	}, limit: minUDP}
	if header.OpCode != 0 {
		return b.fail(dnsmessage.RCodeNotImplemented), result
	}
	var ok bool
	if b.query, ok = parseQuestion(query); !ok || parser.SkipQuestion() != nil {
		return b.fail(dnsmessage.RCodeFormatError), result
	}
	size, err := b.readEDNS(&parser)
	if err != nil {
		return b.fail(dnsmessage.RCodeFormatError), result
	}
	b.limit = min(max(size, minUDP), maxUDP)
	if transport == TCP {
		b.limit = maxTCP
	}
	if b.badEDNS {
		return b.fail(dnsmessage.RCodeSuccess), result
	}
	if name, isServed := queryTypes[b.query.Type]; isServed {
		result.Type = name
	}
	answer, result.Outcome = b.answer(transport, lookup, randN)
	return answer, result
}

var errTwoOPT = errors.New("more than one OPT record")

// readEDNS returns the message size that a client accepts; 0 if it does not announce one (RFC 6891).
func (b *responseBuilder) readEDNS(parser *dnsmessage.Parser) (size int, err error) {
	if err := errors.Join(parser.SkipAllQuestions(), parser.SkipAllAnswers(), parser.SkipAllAuthorities()); err != nil {
		return 0, err
	}
	for {
		header, err := parser.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return size, nil
		}
		if err == nil && header.Type == dnsmessage.TypeOPT {
			if b.edns {
				return 0, errTwoOPT
			}
			b.edns, b.badEDNS, size = true, header.TTL>>16&0xff != 0, int(header.Class)
		}
		// A record whose header the library cannot parse may be well-formed: its name has a label with a dot.
		if err := parser.SkipAdditional(); err != nil {
			return 0, err
		}
	}
}

// answer returns the response to a well-formed query.
func (b *responseBuilder) answer(transport Transport, lookup func(model.ObjectName) *Records, randN func(uint32) uint32) ([]byte, Outcome) {
	typ := b.query.Type
	name, isServiceName := parseName(b.query.Name.String(), b.zone.serviceSuffix()) // the name is empty if one of its labels contains a dot
	if _, isServed := queryTypes[typ]; !isServed || !isServiceName || b.query.Class != dnsmessage.ClassINET {
		return b.fail(dnsmessage.RCodeRefused), Refused
	}
	records := lookup(name.service)
	if records == nil {
		return b.fail(dnsmessage.RCodeRefused), Refused
	}
	all, isKnown := records.find(name, typ)
	switch {
	case !isKnown:
		return b.fail(dnsmessage.RCodeRefused), Refused
	case all.count == 0:
		return b.empty(), Empty
	}
	b.sharedNames = records.sharedNames
	return b.write(transport, name.service, all, randN), Answered
}

// fail returns a response with a code and no record. The question is repeated as received, because the library cannot
// write a label with a dot.
func (b *responseBuilder) fail(code dnsmessage.RCode) []byte {
	b.header.RCode = code
	message := b.finish(dnsmessage.NewBuilder(make([]byte, 0, minUDP), b.header), nil)
	if len(message) < headerSize || b.query.raw == nil {
		return message
	}
	binary.BigEndian.PutUint16(message[4:], 1)
	return slices.Insert(message, headerSize, b.query.raw...)
}

// empty returns the response that the name exists but has no record of this type. The TTL of the SOA record is how long
// the client may cache that (RFC 2308). Even with the longest name and domain, the response has less than 512 bytes.
func (b *responseBuilder) empty() []byte {
	b.header.Authoritative = true
	return b.build(b.addSOA)
}

func (b *responseBuilder) addSOA(builder *dnsmessage.Builder) error {
	zone := b.zone.name()
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
		dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: b.zone.seconds()},
		// As in CoreDNS, except for the serial number: this server has no zone transfers.
		dnsmessage.SOAResource{NS: ns, MBox: mbox, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: b.zone.seconds()},
	)
}

// build writes a message about a served name: the question, the records that add writes, and the OPT record.
func (b *responseBuilder) build(add func(*dnsmessage.Builder) error) []byte {
	builder := dnsmessage.NewBuilder(make([]byte, 0, minUDP), b.header)
	builder.EnableCompression()
	err := errors.Join(builder.StartQuestions(), builder.Question(b.query.Question))
	return b.finish(builder, errors.Join(err, add(&builder)))
}

// finish completes a message, with the OPT record if the client uses EDNS.
func (b *responseBuilder) finish(builder dnsmessage.Builder, err error) []byte {
	if b.edns {
		err = errors.Join(err, b.addOPT(&builder))
	}
	message, finishErr := builder.Finish()
	if err != nil || finishErr != nil {
		return nil // cannot happen: names and counts were checked
	}
	return message
}

func (b *responseBuilder) addOPT(builder *dnsmessage.Builder) error {
	// The section may have been started already.
	if err := builder.StartAdditionals(); err != nil && !errors.Is(err, dnsmessage.ErrSectionDone) {
		return err
	}
	var header dnsmessage.ResourceHeader
	code := b.header.RCode
	if b.badEDNS {
		code = rcodeBadVersion
	}
	if err := header.SetEDNS0(maxUDP, code, false); err != nil {
		return err
	}
	return builder.OPTResource(header, dnsmessage.OPTResource{})
}

// rcodeBadVersion is BADVERS of RFC 6891, whose upper bits are in the OPT record.
const rcodeBadVersion dnsmessage.RCode = 16
