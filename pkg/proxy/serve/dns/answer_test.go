package dns

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

const (
	webName      = "web.shop.svc.cluster.local."
	httpPortName = "_http._tcp." + webName
	soa          = "authority: SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"
)

func TestAnswerRecords(t *testing.T) {
	zoned := fixture{
		keys: []policy.Key{policy.Zone, policy.AnyNode},
		endpoints: []string{
			"10.0.0.1 a", "10.0.0.2 a unready", "10.0.0.3 b", "10.0.0.4 a terminating", "10.0.0.5 a name=web-5", "fd00::1 b",
		},
	}
	hard := fixture{keys: []policy.Key{policy.Zone}, endpoints: []string{"10.0.0.3 b", "fd00::1 a"}}
	one := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a"}}
	dual := fixture{keys: zoned.keys, endpoints: []string{"10.0.0.1 a name=web-0", "fd00::1 a name=web-0", "10.0.0.2 b name=web-0"}}
	none := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a unready", "10.0.0.2 a terminating"}}
	for _, test := range []struct {
		title   string
		fixture fixture
		query   string
		want    string
	}{
		{"ready endpoints of the local zone", zoned, "A " + webName, "NOERROR; A 10.0.0.1, A 10.0.0.5"},
		{"each family is decided independently", zoned, "AAAA " + webName, "NOERROR; AAAA fd00::1"},
		{"upper case", zoned, "A wEb.Shop.SVC.cluster.LOCAL.", "NOERROR; A 10.0.0.1, A 10.0.0.5"},
		{"a port by name", zoned, "SRV " + httpPortName, "NOERROR; SRV 0 33 8080 10-0-0-1." + webName + ", SRV 0 33 8080 fd00--1." + webName +
			", SRV 0 33 8080 web-5." + webName + "; additional: A 10.0.0.1, A 10.0.0.5, AAAA fd00::1"},
		{"all ports", one, "SRV " + webName, "NOERROR; SRV 0 50 5353 10-0-0-1." + webName + ", SRV 0 50 8080 10-0-0-1." + webName +
			"; additional: A 10.0.0.1"},
		{"the addresses of a port", zoned, "A " + httpPortName, "NOERROR; A 10.0.0.1, A 10.0.0.5"},
		{"one name in both families", dual, "SRV " + httpPortName, "NOERROR; SRV 0 50 8080 web-0." + webName +
			"; additional: A 10.0.0.1, AAAA fd00::1"},
		{"the other family only", one, "AAAA " + webName, "NOERROR; " + soa},
		{"a hard key without a matching endpoint", hard, "A " + webName, "NOERROR; " + soa},
		{"a hard key with a matching endpoint", hard, "AAAA " + webName, "NOERROR; AAAA fd00::1"},
		{"no ready endpoint", none, "A " + webName, "REFUSED"},
		{"an unknown port", one, "SRV _https._tcp." + webName, "REFUSED"},
		{"a port of another protocol", one, "SRV _http._udp." + webName, "REFUSED"},
		{"an unknown Service", one, "A db.shop.svc.cluster.local.", "REFUSED"},
		{"another namespace", one, "A web.default.svc.cluster.local.", "REFUSED"},
		{"an endpoint's name from its address", one, "A 10-0-0-1." + webName, "REFUSED"},
		{"an endpoint's name", one, "A a.b." + webName, "REFUSED"},
		{"another type", one, "TXT " + webName, "REFUSED"},
		{"all types", one, "ANY " + webName, "REFUSED"},
		{"another domain", one, "A web.shop.svc.cluster.example.", "REFUSED"},
		{"without a domain", one, "A web.shop.svc.", "REFUSED"},
		{"the domain itself", one, "A svc.cluster.local.", "REFUSED"},
		{"a namespace", one, "A shop.svc.cluster.local.", "REFUSED"},
		{"the root", one, "A .", "REFUSED"},
		{"an address", one, "PTR 1.0.0.10.in-addr.arpa.", "REFUSED"},
		{"a domain with the same suffix", one, "A web.shop.xsvc.cluster.local.", "REFUSED"},
		{"a dot in a label", one, `A web\.shop.svc.cluster.local.`, "REFUSED"},
		{"a dot in the domain", one, `A web.shop.svc.cluster\.local.`, "REFUSED"},
		{"a dot in a name of another zone", one, `TXT first\.last.example.`, "REFUSED"},
		{"a label with unusual bytes", one, `A \000\255\\.shop.svc.cluster.local.`, "REFUSED"},
	} {
		t.Run(test.title, func(t *testing.T) {
			query := newQuery(t, test.query)
			for _, transport := range []Transport{UDP, TCP} {
				got, _, result := exchange(t, query, transport, test.fixture.lookup())
				if text := answerText(got); text != test.want {
					t.Errorf("got  %s\nwant %s", text, test.want)
				}
				if got.Question[0] != query.Question[0] {
					t.Errorf("the response repeats the question as %v, want %v", got.Question[0], query.Question[0])
				}
				for _, record := range append(got.Answer, got.Ns...) {
					if record.Header().Ttl != 5 {
						t.Errorf("TTL of %v is not 5 s", record)
					}
				}
				isRefused := got.Rcode == miekg.RcodeRefused
				if got.Authoritative == isRefused || isRefused != (result.Outcome == Refused) {
					t.Errorf("authoritative: %t, result %v", got.Authoritative, result)
				}
			}
		})
	}
}

// TestUnusualQueries covers messages that resolvers do not usually send.
func TestUnusualQueries(t *testing.T) {
	one := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a"}}.lookup()
	for title, test := range map[string]struct {
		change func(*miekg.Msg)
		want   string
	}{
		"another opcode":    {func(m *miekg.Msg) { m.Opcode = miekg.OpcodeUpdate }, "NOTIMP"},
		"no question":       {func(m *miekg.Msg) { m.Question = nil }, "FORMERR"},
		"two questions":     {func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) }, "FORMERR"},
		"another class":     {func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassCHAOS }, "REFUSED"},
		"an unknown EDNS":   {func(m *miekg.Msg) { m.SetEdns0(4096, false); m.IsEdns0().SetVersion(1) }, "BADVERS"},
		"two OPT records":   {func(m *miekg.Msg) { m.SetEdns0(4096, false); m.Extra = append(m.Extra, m.Extra[0]) }, "FORMERR"},
		"an answer record":  {func(m *miekg.Msg) { m.Answer = []miekg.RR{answerRecord(m)} }, "NOERROR; A 10.0.0.1"},
		"a small EDNS size": {func(m *miekg.Msg) { m.SetEdns0(100, true) }, "NOERROR; A 10.0.0.1"},
		"a dot in a label":  {func(m *miekg.Msg) { m.Question[0].Name = `a\.b.`; m.SetEdns0(1400, true) }, "REFUSED"},
		"a dot in a label of an additional record": {func(m *miekg.Msg) {
			m.Extra = []miekg.RR{answerRecord(m)}
			m.Extra[0].Header().Name = `a\.b.`
			m.SetEdns0(1400, true)
		}, "NOERROR; A 10.0.0.1"},
	} {
		t.Run(title, func(t *testing.T) {
			query := newQuery(t, "A "+webName)
			test.change(query)
			got, _, _ := exchange(t, query, UDP, one)
			text := answerText(got)
			if text == "BADSIG" { // the library's name of the same number
				text = "BADVERS"
			}
			if text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
			if (got.IsEdns0() != nil) != (query.IsEdns0() != nil) && test.want != "FORMERR" {
				t.Errorf("response has OPT: %t, query: %t", got.IsEdns0() != nil, query.IsEdns0() != nil)
			}
		})
	}
	response := newQuery(t, "A "+webName)
	response.Response = true
	packed, err := response.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for title, message := range map[string][]byte{"a response": packed, "too short": packed[:11], "nothing": nil} {
		if answer, result := testZone.Answer(message, UDP, one, firstTarget); answer != nil || result.Outcome != Malformed {
			t.Errorf("%s: got response %x, %v", title, answer, result)
		}
	}
}

// TestFormatErrorOnlyForMalformedQueries: after FORMERR the node's cache does not query the cluster's DNS.
func TestFormatErrorOnlyForMalformedQueries(t *testing.T) {
	lookup := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a"}}.lookup()
	label := func(size int) string { return string(rune(size)) + strings.Repeat("x", size) }
	const typeAndClass = "\x00\x01\x00\x01"
	for title, test := range map[string]struct {
		question string
		want     int
	}{
		"the longest label":             {label(63) + "\x00" + typeAndClass, miekg.RcodeRefused},
		"a label that is too long":      {label(64) + "\x00" + typeAndClass, miekg.RcodeFormatError},
		"a name of 255 bytes":           {strings.Repeat(label(63), 3) + label(61) + "\x00" + typeAndClass, miekg.RcodeRefused},
		"a name that is too long":       {strings.Repeat(label(63), 3) + label(62) + "\x00" + typeAndClass, miekg.RcodeFormatError},
		"a dot, a zero and a backslash": {"\x03.\x00\\\x00" + typeAndClass, miekg.RcodeRefused},
		"a pointer to itself":           {"\xc0\x0c" + typeAndClass, miekg.RcodeFormatError},
		"a pointer into the header":     {"\xc0\x04" + typeAndClass, miekg.RcodeFormatError},
		"a truncated label":             {"\x09short", miekg.RcodeFormatError},
		"a truncated name":              {"\x05short", miekg.RcodeFormatError},
		"a missing class":               {"\x05short\x00\x00\x01", miekg.RcodeFormatError},
	} {
		query := append([]byte{0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, test.question...)
		answer, _ := testZone.Answer(query, UDP, lookup, firstTarget)
		if len(answer) < headerSize || int(answer[3]&0xf) != test.want {
			t.Errorf("%s: response %x, want code %d", title, answer, test.want)
		}
		if test.want == miekg.RcodeRefused && string(answer[headerSize:]) != test.question {
			t.Errorf("%s: the response repeats the question as %q", title, answer[headerSize:])
		}
	}
}

// TestOnlyASCIIIsCaseInsensitive: case folding maps some other characters to ASCII letters, but in DNS they are
// different names.
func TestOnlyASCIIIsCaseInsensitive(t *testing.T) {
	records := NewRecords(fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a"}}.decisions(), testZone)
	lookup := func(name model.ObjectName) *Records {
		if name != (model.ObjectName{Namespace: "sick", Name: "kiosk"}) {
			return nil
		}
		return records
	}
	const serviceName = "kiosk.sick.svc.cluster.local."
	if got, _, _ := exchange(t, newQuery(t, "A "+strings.ToUpper(serviceName)), UDP, lookup); len(got.Answer) != 1 {
		t.Errorf("in capitals: %s, want one record", answerText(got))
	}
	for letter, lookalike := range map[string]string{"k": "\u212a", "s": "\u017f", "i": "\u0130", "K": "\u212a"} { // Kelvin, long s, dotted I
		if name := strings.ReplaceAll(serviceName, letter, lookalike); name != serviceName {
			if got, _, _ := exchange(t, newQuery(t, "A "+name), UDP, lookup); answerText(got) != "REFUSED" {
				t.Errorf("with %q for %s: %s, want REFUSED", lookalike, letter, answerText(got))
			}
		}
	}
}

func answerRecord(m *miekg.Msg) *miekg.A {
	header := miekg.RR_Header{Name: m.Question[0].Name, Rrtype: miekg.TypeA, Class: miekg.ClassINET, Ttl: 1}
	return &miekg.A{Hdr: header, A: []byte{1, 2, 3, 4}}
}

// TestLongAnswers: responses fill the size that the client accepts, starting at a random endpoint.
func TestLongAnswers(t *testing.T) {
	many := func(count int, text string) (endpoints []string) {
		for i := range count {
			endpoints = append(endpoints, fmt.Sprintf(text, i/256, i%256))
		}
		return endpoints
	}
	for title, test := range map[string]struct {
		endpoints []string
		query     string
		size      uint16 // EDNS size; 0 without EDNS
		transport Transport
		records   int
		truncated bool
		length    int // maximum length
	}{
		"A, 512 bytes":         {many(100, "10.0.%d.%d a"), "A " + webName, 0, UDP, 29, true, 512},
		"A, exactly as many":   {many(29, "10.0.%d.%d a"), "A " + webName, 0, UDP, 29, false, 512},
		"A, EDNS":              {many(100, "10.0.%d.%d a"), "A " + webName, 1232, UDP, 73, true, 1232},
		"A, EDNS, too much":    {many(100, "10.0.%d.%d a"), "A " + webName, 65535, UDP, 73, true, 1232},
		"AAAA, 512 bytes":      {many(100, "fd00::%x:%x a"), "AAAA " + webName, 0, UDP, 16, true, 512},
		"SRV, 512 bytes":       {many(100, "10.0.%d.%d a"), "SRV " + httpPortName, 0, UDP, 8, true, 512},
		"A over TCP":           {many(1000, "10.0.%d.%d a"), "A " + webName, 0, TCP, 1000, false, 65535},
		"A over TCP, too many": {many(5000, "10.0.%d.%d a"), "A " + webName, 0, TCP, 4093, false, 65535},
		"AAAA over TCP":        {many(5000, "fd00::%x:%x a"), "AAAA " + webName, 0, TCP, 2338, false, 65535},
	} {
		t.Run(title, func(t *testing.T) {
			query := newQuery(t, test.query)
			if test.size > 0 {
				query.SetEdns0(test.size, false)
			}
			lookup := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: test.endpoints}.lookup()
			got, length, _ := exchange(t, query, test.transport, lookup)
			if len(got.Answer) != test.records || got.Truncated != test.truncated || length > test.length {
				t.Errorf("%d records, truncated: %t, %d bytes; want %d, %t, at most %d",
					len(got.Answer), got.Truncated, length, test.records, test.truncated, test.length)
			}
			last := uint32(len(test.endpoints) - 1)
			packed, err := query.Pack()
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := testZone.Answer(packed, test.transport, lookup, func(uint32) uint32 { return last })
			var other miekg.Msg
			if err := other.Unpack(answer); err != nil || len(other.Answer) < test.records-4 {
				t.Errorf("starting at the last endpoint: %v, %d records", err, len(other.Answer))
			}
			if len(test.endpoints) > test.records && other.Answer[0].String() == got.Answer[0].String() {
				t.Errorf("both responses start with %s", other.Answer[0])
			}
		})
	}
}

// TestLoadBoundDeterminesFirstAddress: an endpoint comes first in proportion to its slots.
func TestLoadBoundDeterminesFirstAddress(t *testing.T) {
	decisions := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a", "10.0.0.2 a", "10.0.0.3 a"}}.decisions()
	for i := range decisions {
		if choice := &decisions[i].Selection.Cluster; len(choice.Endpoints) == 3 {
			choice.Slots = []int{5, 1, 2}
		}
	}
	records := NewRecords(decisions, testZone)
	lookup := func(model.ObjectName) *Records { return records }
	packed, err := newQuery(t, "A "+webName).Pack()
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for slot := range uint32(8) {
		answer, _ := testZone.Answer(packed, UDP, lookup, func(n uint32) uint32 {
			if n != 8 {
				t.Errorf("random number below %d requested, want 8", n)
			}
			return slot
		})
		var parsed miekg.Msg
		if err := parsed.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		order = append(order, parsed.Answer[0].(*miekg.A).A.String())
	}
	if got, want := strings.Join(order, " "), strings.Repeat("10.0.0.1 ", 5)+"10.0.0.2 10.0.0.3 10.0.0.3"; got != want {
		t.Errorf("first addresses %s, want %s", got, want)
	}
	got, _, _ := exchange(t, newQuery(t, "SRV "+httpPortName), UDP, lookup)
	want := "NOERROR; SRV 0 1 8080 10-0-0-2." + webName + ", SRV 0 2 8080 10-0-0-3." + webName + ", SRV 0 5 8080 10-0-0-1." + webName +
		"; additional: A 10.0.0.1, A 10.0.0.2, A 10.0.0.3"
	if text := answerText(got); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// FuzzAnswer: for any input, the response is not too long for the transport, another library can parse it, it is marked
// as a response, and Answer would not respond to it.
func FuzzAnswer(f *testing.F) {
	lookup := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a", "10.0.0.2 b name=web-2", "fd00::1 b"}}.lookup()
	for _, name := range []string{webName, httpPortName, "x." + webName, ".", `a\.b.` + webName, `\000\255\226\132\170.example.`} {
		for _, typ := range []uint16{miekg.TypeA, miekg.TypeAAAA, miekg.TypeSRV, miekg.TypeTXT} {
			query := new(miekg.Msg).SetQuestion(name, typ)
			for range 2 {
				packed, err := query.Pack()
				if err != nil {
					f.Fatal(err)
				}
				f.Add(packed)
				query.SetEdns0(1400, true)
			}
		}
	}
	loop := append(make([]byte, 12), 0xc0, 12, 0, 1, 0, 1) // a compression pointer to itself
	loop[5] = 1
	f.Add(loop)
	f.Fuzz(func(t *testing.T, query []byte) { checkAnswer(t, query, lookup) })
}

func checkAnswer(t *testing.T, query []byte, lookup func(model.ObjectName) *Records) {
	t.Helper()
	for transport, maxLength := range map[Transport]int{UDP: maxUDP, TCP: maxTCP} {
		answer, result := testZone.Answer(query, transport, lookup, firstTarget)
		if answer == nil {
			if len(query) >= headerSize && query[2]&0x80 == 0 {
				t.Errorf("%x: no response, %v", query, result)
			}
			continue
		}
		var parsed miekg.Msg
		if err := parsed.Unpack(answer); err != nil || !parsed.Response || len(answer) > maxLength {
			t.Errorf("%x: response %x, %d bytes: %v", query, answer, len(answer), err)
		}
		if isWellFormed(query) && parsed.Rcode == miekg.RcodeFormatError {
			t.Errorf("%x is well-formed, but the response is FORMERR", query)
		}
		if again, _ := testZone.Answer(answer, transport, lookup, firstTarget); again != nil {
			t.Errorf("response %x gets a response", answer)
		}
	}
}

// isWellFormed reports whether another library can parse a query: one question, whose name is not a pointer, and at
// most one OPT record.
func isWellFormed(query []byte) bool {
	var parsed miekg.Msg
	if parsed.Unpack(query) != nil || len(parsed.Question) != 1 || parsed.Opcode != miekg.OpcodeQuery || len(query) < headerSize {
		return false
	}
	optRecords, records := 0, len(parsed.Answer)+len(parsed.Ns)+len(parsed.Extra)
	for _, record := range parsed.Extra {
		if record.Header().Rrtype == miekg.TypeOPT {
			optRecords++
		}
	}
	counted := 0 // that library tolerates missing records, and data after the question
	for _, at := range []int{6, 8, 10} {
		counted += int(query[at])<<8 | int(query[at+1])
	}
	packed, err := parsed.Pack()
	isPointer := bytes.ContainsFunc(query[headerSize:], func(r rune) bool { return r >= 0xc0 })
	return optRecords < 2 && counted == records && !isPointer && err == nil && len(packed) <= len(query)
}

// TestMutatedQueries changes a few bytes of a valid query, millions of times if VICINITY_MUTATIONS is set accordingly.
func TestMutatedQueries(t *testing.T) {
	lookup := fixture{keys: []policy.Key{policy.AnyNode}, endpoints: []string{"10.0.0.1 a", "10.0.0.2 b name=web-2", "fd00::1 b"}}.lookup()
	mutate(t, lookup)
}
