package ruleset

import (
	"fmt"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Statement is one step of a rule. A step that does not match ends the rule. Package nft encodes each for the kernel.
type Statement interface {
	// text returns the statement in nft's syntax.
	text(family model.Family) string
}

// reference is a set or map that a statement uses, a chain that it leads to, a counter that it increments.
type reference struct{ set, chain, counter string }

// referenceOf returns what must exist before a rule with the statement.
func referenceOf(statement Statement) reference {
	switch s := statement.(type) {
	case InSet:
		return reference{set: s.Set.Name}
	case FromRange:
		return reference{set: s.Set.Name}
	case VerdictOf:
		return reference{set: s.Map.Name}
	case SetPriority:
		return reference{set: s.Map.Name}
	case DNAT:
		return reference{set: s.Map.Name}
	case UpdateAffinity:
		return reference{set: s.Map.Name}
	case DeleteAffinity:
		return reference{set: s.Map.Name}
	case Count:
		return reference{counter: s.Counter}
	case VerdictStatement:
		return reference{chain: s.Verdict.target()}
	}
	return reference{}
}

// ProtocolIs is `meta l4proto tcp`. nft needs it to know the type of `ct original proto-dst`.
type ProtocolIs struct{ Protocol model.Protocol }

func (s ProtocolIs) text(model.Family) string { return "meta l4proto " + protocolText(s.Protocol) }

// InSet is `<key> @set`, or `<key> != @set`.
type InSet struct {
	Key []Field
	Set Set
	Not bool
}

func (s InSet) text(family model.Family) string {
	return keyText(family, s.Key) + notText(s.Not) + "@" + s.Set.Name
}

// FromRange is `meta priority . X saddr & 255.255.255.0 . X saddr | 0.0.0.255 @set`: the list whose number is in the
// priority has a range with a prefix of that length, and the client is in it.
type FromRange struct {
	Set  Set
	Bits int
}

func (s FromRange) text(family model.Family) string {
	everything := netip.PrefixFrom(model.AnyAddr(family), 0)
	lowest := netip.PrefixFrom(everything.Addr(), s.Bits)
	first, last := SourceAddr.text(family), SourceAddr.text(family)
	if !lowest.IsSingleIP() {
		first += " & " + netip.PrefixFrom(netipx.PrefixLastIP(everything), s.Bits).Masked().Addr().String()
		last += " | " + hostsText(netipx.PrefixLastIP(lowest))
	}
	return keyText(family, []Field{Priority}) + " . " + first + " . " + last + " @" + s.Set.Name
}

// hostsText returns the host bits of a prefix in nft's syntax: as inet_ntop does, which takes an IPv6 address for an
// IPv4-compatible one if its highest set bit is among the lowest 32, but not among the lowest 16.
func hostsText(hosts netip.Addr) string {
	bytes := hosts.As16()
	lowest := bytes[12:]
	if hosts.Is6() && [12]byte(bytes[:12]) == [12]byte{} && lowest[0]|lowest[1] != 0 {
		return "::" + netip.AddrFrom4([4]byte(lowest)).String()
	}
	return hosts.String()
}

// InPrefix is `X saddr 10.244.0.0/16`, or `X saddr != 10.244.0.0/16`.
type InPrefix struct {
	Field  Field
	Prefix netip.Prefix
	Not    bool
}

func (s InPrefix) text(family model.Family) string {
	return s.Field.text(family) + notText(s.Not) + prefixText(s.Prefix)
}

// NotFromInterface is `iifname != "cbr0"`; with Prefix, `iifname != "cbr*"`. A packet that the node itself sends has no
// input interface. Since Linux 5.7 postrouting has the input interface of a forwarded packet.
type NotFromInterface struct {
	Name   string
	Prefix bool
}

func (s NotFromInterface) text(model.Family) string {
	if s.Prefix {
		return `iifname != "` + s.Name + `*"`
	}
	return `iifname != "` + s.Name + `"`
}

// FromInterface is `iif != 0`: the packet arrived through some interface. This does not match packets that the node
// itself sends and, in postrouting, packets that br_netfilter passes over a bridge.
type FromInterface struct{}

func (FromInterface) text(model.Family) string { return "iif != 0" }

// IsLocal is `fib saddr type local`: an address of this machine. Field is SourceAddr or DestinationAddr.
type IsLocal struct {
	Field Field
	Not   bool // `fib saddr type != local`
}

func (s IsLocal) text(model.Family) string {
	side := "saddr"
	if s.Field == DestinationAddr {
		side = "daddr"
	}
	return "fib " + side + " type" + notText(s.Not) + "local"
}

// HasDestinationNAT is `ct status dnat`.
type HasDestinationNAT struct{}

func (HasDestinationNAT) text(model.Family) string { return "ct status dnat" }

// IsNew is `ct state new`: the packet starts a connection. A reply that refuses it is in state related.
type IsNew struct{}

func (IsNew) text(model.Family) string { return "ct state new" }

// SetLabel is `ct label set 86`: it sets one of the 128 bits that conntrack has for each connection, and no other.
type SetLabel struct{ Bit uint8 }

func (s SetLabel) text(model.Family) string { return fmt.Sprintf("ct label set %d", s.Bit) }

// HasLabel is `ct label 86`.
type HasLabel struct{ Bit uint8 }

func (s HasLabel) text(model.Family) string { return fmt.Sprintf("ct label %d", s.Bit) }

// VerdictOf is `<key> vmap @map`.
type VerdictOf struct {
	Key []Field
	Map Set
}

func (s VerdictOf) text(family model.Family) string {
	return keyText(family, s.Key) + " vmap @" + s.Map.Name
}

// SetPriority is `meta priority set <key> map @map`.
type SetPriority struct {
	Key []Field
	Map Set
}

func (s SetPriority) text(family model.Family) string {
	return "meta priority set " + keyText(family, s.Key) + " map @" + s.Map.Name
}

// WritePriority is `meta priority set fd00:0`, or `meta priority set none`.
type WritePriority struct{ Number uint32 }

func (s WritePriority) text(model.Family) string {
	if s.Number == 0 {
		return "meta priority set none"
	}
	return "meta priority set " + classText(s.Number)
}

// RandomSlot is `meta priority set numgen random mod Slots offset First`: one of Slots numbers, from First on.
type RandomSlot struct {
	Slots int
	First uint32
}

func (s RandomSlot) text(model.Family) string {
	return fmt.Sprintf("meta priority set numgen random mod %d offset %d", s.Slots, s.First)
}

// PriorityBetween is `meta priority First-Last`.
type PriorityBetween struct{ First, Last uint32 }

func (s PriorityBetween) text(model.Family) string {
	return fmt.Sprintf("meta priority %s-%s", classText(s.First), classText(s.Last))
}

// DNAT is `dnat X to <key> map @map`. The map's values are addresses and ports.
type DNAT struct {
	Key []Field
	Map Set
}

func (s DNAT) text(family model.Family) string {
	return fmt.Sprintf("dnat %s to %s map @%s", Keyword(family), keyText(family, s.Key), s.Map.Name)
}

// UpdateAffinity is `update @map { meta priority & Mask . X saddr timeout T : meta priority }`. For an existing key it
// only renews the timeout.
type UpdateAffinity struct {
	Map     Set
	Mask    uint32
	Timeout time.Duration // whole seconds, which every version of nft reads; a Service's timeout has no fractions
}

func (s UpdateAffinity) text(family model.Family) string {
	return fmt.Sprintf("update @%s { %s timeout %ds : meta priority }",
		s.Map.Name, clientText(family, s.Mask), int64(s.Timeout/time.Second))
}

// DeleteAffinity is `delete @map { meta priority & Mask . X saddr : meta priority }`.
type DeleteAffinity struct {
	Map  Set
	Mask uint32
}

func (s DeleteAffinity) text(family model.Family) string {
	return fmt.Sprintf("delete @%s { %s : meta priority }", s.Map.Name, clientText(family, s.Mask))
}

func clientText(family model.Family, mask uint32) string {
	return "meta priority & " + classText(mask) + " . " + SourceAddr.text(family)
}

// Masquerade is `masquerade fully-random`.
type Masquerade struct{}

func (Masquerade) text(model.Family) string { return "masquerade fully-random" }

// Reject is `reject`: the family's ICMP port unreachable; with TCPReset, after a ProtocolIs, `reject with tcp reset`.
type Reject struct{ TCPReset bool }

func (s Reject) text(model.Family) string {
	if s.TCPReset {
		return "reject with tcp reset"
	}
	return "reject"
}

// Count is `counter name "Counter"`.
type Count struct{ Counter string }

func (s Count) text(model.Family) string { return fmt.Sprintf("counter name %q", s.Counter) }

// VerdictStatement is a verdict: `jump chain`, `goto chain`, `return` or `drop`.
type VerdictStatement struct{ Verdict Verdict }

func (s VerdictStatement) text(model.Family) string { return verdictText(s.Verdict) }

func notText(not bool) string {
	if not {
		return " != "
	}
	return " "
}
