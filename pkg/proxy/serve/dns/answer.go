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

// Zone is what a server answers for.
type Zone struct {
	// Domain is the cluster's domain, such as "cluster.local".
	Domain string
	// TTL is how long an answer may be kept, in whole seconds.
	TTL time.Duration
}

// services is below what all names are that are answered: "svc.cluster.local." in small letters.
func (z Zone) services() string { return "svc." + z.name() }

// below is what follows the name of an endpoint of a Service: ".web.shop.svc.cluster.local.".
func (z Zone) below(service model.ObjectName) string {
	return "." + service.Name + "." + service.Namespace + "." + z.services()
}

func (z Zone) name() string { return lower(strings.TrimSuffix(z.Domain, ".")) + "." }

func (z Zone) seconds() uint32 { return uint32(z.TTL / time.Second) }

// Transport is how a query came: it bounds the answer.
type Transport int

// The transports.
const (
	UDP Transport = iota
	TCP
)

// How long answers may be. Over UDP a client says how much it takes, and without that it takes 512 bytes (RFC 1035). More
// than 1232 bytes may be lost on the way (DNS flag day 2020).
const (
	maxTCP         = 1<<16 - 1
	minUDP         = 512
	maxUDP         = 1232
	maxQueryLength = 4096
)

// Outcome is what happened to a query.
type Outcome string

// The outcomes.
const (
	Answered  Outcome = "answered"  // with at least one record
	Empty     Outcome = "empty"     // the name is ours, and this node has no record of that type
	Refused   Outcome = "refused"   // another server may know
	Malformed Outcome = "malformed" // or something that is no query
)

// Result is a query's outcome and its type: "A", "AAAA", "SRV" or "other".
type Result struct {
	Type    string
	Outcome Outcome
}

// queryTypes are the types with records, by name.
var queryTypes = map[dnsmessage.Type]string{dnsmessage.TypeA: "A", dnsmessage.TypeAAAA: "AAAA", dnsmessage.TypeSRV: "SRV"}

// responseBuilder is an answer that is being made.
type responseBuilder struct {
	zone    Zone
	header  dnsmessage.Header
	query   parsedQuery // the zero value: no question could be read
	edns    bool
	badEDNS bool // an unknown version
	limit   int
	// alike holds the addresses of SRV records' targets by name, where several share one.
	alike map[string][]netip.Addr
}

// Answer answers a query. lookup returns the Records of a Service; nil: not ours. draw returns a random number below
// its argument. A message that is too short for a header gets no answer, and neither does an answer: two servers would
// talk forever.
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

// readEDNS reads how much a client takes; 0 if it does not say (RFC 6891).
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
		// A record whose header the library does not read may be well formed: its name has a label with a dot.
		if err := parser.SkipAdditional(); err != nil {
			return 0, err
		}
	}
}

// answer answers a query that is well formed.
func (d *responseBuilder) answer(transport Transport, lookup func(model.ObjectName) *Records, draw func(uint32) uint32) ([]byte, Outcome) {
	typ := d.query.Type
	name, isBelow := parseName(d.query.Name.String(), d.zone.services()) // it has no name if that has a dot in a label
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

// fail answers with a code and no record. The question is repeated as it came: the library writes no label with a dot.
func (d *responseBuilder) fail(code dnsmessage.RCode) []byte {
	d.header.RCode = code
	message := d.finish(dnsmessage.NewBuilder(make([]byte, 0, minUDP), d.header), nil)
	if len(message) < headerSize || d.query.raw == nil {
		return message
	}
	binary.BigEndian.PutUint16(message[4:], 1)
	return slices.Insert(message, headerSize, d.query.raw...)
}

// empty answers that the name exists, but has no record of this type. The SOA says for how long (RFC 2308). With the longest
// name and domain that is less than 512 bytes.
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
		// As CoreDNS says it, except for the serial number: nothing is transferred from here.
		dnsmessage.SOAResource{NS: ns, MBox: mbox, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: d.zone.seconds()},
	)
}

// build writes a message about a name of ours: the question, what add adds, and the OPT record.
func (d *responseBuilder) build(add func(*dnsmessage.Builder) error) []byte {
	builder := dnsmessage.NewBuilder(make([]byte, 0, minUDP), d.header)
	builder.EnableCompression()
	err := errors.Join(builder.StartQuestions(), builder.Question(d.query.Question))
	return d.finish(builder, errors.Join(err, add(&builder)))
}

// finish ends a message, with the OPT record if the client speaks EDNS.
func (d *responseBuilder) finish(builder dnsmessage.Builder, err error) []byte {
	if d.edns {
		err = errors.Join(err, d.addOPT(&builder))
	}
	message, finished := builder.Finish()
	if err != nil || finished != nil {
		return nil // writing cannot fail: names and counts were checked
	}
	return message
}

func (d *responseBuilder) addOPT(builder *dnsmessage.Builder) error {
	// The section may have been begun already.
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
