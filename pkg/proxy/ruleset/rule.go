package ruleset

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Field is something a rule reads from a packet or from its connection.
type Field uint8

// The fields in use, each with what nft calls it. X is `ip` or `ip6`.
const (
	SourceAddr              Field = iota // X saddr
	DestinationAddr                      // X daddr
	L4Proto                              // meta l4proto
	DestinationPort                      // th dport
	OriginalSourceAddr                   // ct original X saddr
	OriginalDestinationAddr              // ct original X daddr
	OriginalDestinationPort              // ct original proto-dst
	ReplySourceAddr                      // ct reply X saddr
	Priority                             // meta priority
)

// Statement is one step of a rule. A step that does not match ends the rule.
type Statement interface {
	isStatement()
}

// Rule is a list of statements, from left to right.
type Rule []Statement

// The statements, each with its form in nft.
type (
	// ProtocolIs is `meta l4proto tcp`. nft needs it to know what `ct original proto-dst` is.
	ProtocolIs struct{ Protocol model.Protocol }
	// ReplyPortIs is `ct reply proto-src 8080`, after a ProtocolIs.
	ReplyPortIs struct{ Port uint16 }
	// InSet is `<key> @set`, or `<key> != @set`.
	InSet struct {
		Key []Field
		Set Set
		Not bool
	}
	// InPrefix is `X saddr 10.244.0.0/16`, or `X saddr != 10.244.0.0/16`.
	InPrefix struct {
		Field  Field
		Prefix netip.Prefix
		Not    bool
	}
	// NotFromInterface is `iifname != "cbr0"`; with Prefix, `iifname != "cbr*"`. A packet that the node itself sends has come
	// from none. Postrouting knows the interface of a packet that is forwarded since Linux 5.7.
	NotFromInterface struct {
		Name   string
		Prefix bool
	}
	// FromInterface is `iif != 0`: the packet has come in by some interface. One that the node itself sends has not, nor has, in
	// postrouting, one that br_netfilter takes over a bridge.
	FromInterface struct{}
	// IsLocal is `fib saddr type local`: an address of this machine. Field is SourceAddr or DestinationAddr.
	IsLocal struct {
		Field Field
		Not   bool // `fib saddr type != local`
	}
	// HasDestinationNAT is `ct status dnat`.
	HasDestinationNAT struct{}
	// VerdictOf is `<key> vmap @map`.
	VerdictOf struct {
		Key []Field
		Map Set
	}
	// SetPriority is `meta priority set <key> map @map`.
	SetPriority struct {
		Key []Field
		Map Set
	}
	// ResetPriority is `meta priority set none`.
	ResetPriority struct{}
	// DrawSlot is `meta priority set numgen random mod Slots offset First`: one of so many numbers, from First on.
	DrawSlot struct {
		Slots int
		First uint32
	}
	// PriorityBetween is `meta priority First-Last`.
	PriorityBetween struct{ First, Last uint32 }
	// DNAT is `dnat X to <key> map @map[:Port]`. The map's values are addresses and ports, or addresses alone if the statement
	// has a port.
	DNAT struct {
		Key  []Field
		Map  Set
		Port uint16 // the destination port, if not zero
	}
	// Update is `update @map { <key> timeout T : <value> }`. On a key that is there already it only renews the timeout.
	Update struct {
		Map     Set
		Key     []Field
		Value   []Field
		Timeout time.Duration
	}
	// Masquerade is `masquerade fully-random`.
	Masquerade struct{}
	// Reject is `reject`: the family's ICMP port unreachable; with TCPReset, after a ProtocolIs, `reject with tcp reset`.
	Reject struct{ TCPReset bool }
	// Do is a verdict: `jump chain`, `goto chain`, `return` or `drop`.
	Do struct{ Verdict Verdict }
)

func (ProtocolIs) isStatement()        {}
func (ReplyPortIs) isStatement()       {}
func (InSet) isStatement()             {}
func (InPrefix) isStatement()          {}
func (NotFromInterface) isStatement()  {}
func (FromInterface) isStatement()     {}
func (IsLocal) isStatement()           {}
func (HasDestinationNAT) isStatement() {}
func (VerdictOf) isStatement()         {}
func (SetPriority) isStatement()       {}
func (ResetPriority) isStatement()     {}
func (DrawSlot) isStatement()          {}
func (PriorityBetween) isStatement()   {}
func (DNAT) isStatement()              {}
func (Update) isStatement()            {}
func (Masquerade) isStatement()        {}
func (Reject) isStatement()            {}
func (Do) isStatement()                {}

// Hook is where a base chain sees packets.
type Hook uint8

// The hooks of NAT chains. The values are the kernel's NF_INET_* numbers.
const (
	NoHook      Hook = 0xff
	Prerouting  Hook = 0
	Input       Hook = 1
	Output      Hook = 3
	Postrouting Hook = 4
)

// The priorities of NAT chains. After routing ours come before those of others, at NF_IP_PRI_NAT_SRC: the kernel asks no chain
// any more once one has translated the source (nf_nat_inet_fn), so that a CNI which masquerades would hide from ours what it
// has to remember, to drop and to reset.
const (
	PriorityDNAT int32 = -100
	PrioritySNAT int32 = 100 - 1
)

// Chain is a chain and its rules. A base chain is of type nat and accepts by default.
type Chain struct {
	Name     string
	Hook     Hook // NoHook for a chain that is only jumped to
	Priority int32
	Rules    []Rule
}
