package ruleset

import (
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Field is a value that a rule reads from a packet or from its connection.
type Field uint8

// The fields in use, each with nft's name. X is `ip` or `ip6`.
const (
	SourceAddr              Field = iota // X saddr
	DestinationAddr                      // X daddr
	L4Proto                              // meta l4proto
	DestinationPort                      // th dport
	OriginalSourceAddr                   // ct original X saddr
	OriginalDestinationAddr              // ct original X daddr
	OriginalDestinationPort              // ct original proto-dst
	Priority                             // meta priority
)

// text returns the field in nft's syntax.
func (f Field) text(family model.Family) string {
	ip := Keyword(family)
	switch f {
	case SourceAddr:
		return ip + " saddr"
	case DestinationAddr:
		return ip + " daddr"
	case L4Proto:
		return "meta l4proto"
	case DestinationPort:
		return "th dport"
	case OriginalSourceAddr:
		return "ct original " + ip + " saddr"
	case OriginalDestinationAddr:
		return "ct original " + ip + " daddr"
	case OriginalDestinationPort:
		return "ct original proto-dst"
	case Priority:
		return "meta priority"
	}
	panic(fmt.Sprintf("ruleset: field %d has no text", f))
}

func keyText(family model.Family, key []Field) string {
	texts := make([]string, len(key))
	for i, field := range key {
		texts[i] = field.text(family)
	}
	return strings.Join(texts, " . ")
}

// Rule is a list of statements, from left to right.
type Rule []Statement

// text returns the rule in nft's syntax.
func (r Rule) text(family model.Family) string {
	texts := make([]string, len(r))
	for i, statement := range r {
		texts[i] = statement.text(family)
	}
	return strings.Join(texts, " ")
}

// Hook is the netfilter hook of a base chain.
type Hook uint8

// The hooks of NAT chains. The values are the kernel's NF_INET_* numbers.
const (
	NoHook      Hook = 0xff
	Prerouting  Hook = 0
	Input       Hook = 1
	Output      Hook = 3
	Postrouting Hook = 4
)

// The priorities of NAT chains. In postrouting ours precede those of others, at NF_IP_PRI_NAT_SRC: once a chain has
// translated the source, the kernel runs no further chain (nf_nat_inet_fn). If a CNI masqueraded first, our chain could
// not drop packets and clear priorities as it must.
const (
	PriorityDNAT int32 = -100
	PrioritySNAT int32 = othersSNAT - 1
	othersSNAT   int32 = 100 // nft's name for it is srcnat
)

// Chain is a chain and its rules. A base chain is of type nat and accepts by default.
type Chain struct {
	Name     string
	Hook     Hook // NoHook for a chain that is only jumped to
	Priority int32
	Rules    []Rule
}
