package ruleset

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Keyword is what nft calls a family, in front of a table and of an address.
func Keyword(family model.Family) string {
	if family == model.IPv4 {
		return "ip"
	}
	return "ip6"
}

// fieldText is how nft writes a field.
func fieldText(family model.Family, field Field) string {
	ip := Keyword(family)
	switch field {
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
	case ReplySourceAddr:
		return "ct reply " + ip + " saddr"
	case Priority:
		return "meta priority"
	}
	panic(fmt.Sprintf("ruleset: field %d has no text", field))
}

func keyText(family model.Family, key []Field) string {
	texts := make([]string, len(key))
	for i, field := range key {
		texts[i] = fieldText(family, field)
	}
	return strings.Join(texts, " . ")
}

// ruleText is how nft writes a rule.
func ruleText(family model.Family, rule Rule) string {
	texts := make([]string, len(rule))
	for i, statement := range rule {
		texts[i] = statementText(family, statement)
	}
	return strings.Join(texts, " ")
}

func statementText(family model.Family, statement Statement) string {
	switch s := statement.(type) {
	case ProtocolIs:
		return "meta l4proto " + protocolText(s.Protocol)
	case ReplyPortIs:
		return fmt.Sprintf("ct reply proto-src %d", s.Port)
	case InSet:
		return keyText(family, s.Key) + notText(s.Not) + "@" + s.Set.Name
	case InPrefix:
		return fieldText(family, s.Field) + notText(s.Not) + prefixText(s.Prefix)
	case NotFromInterface:
		return interfaceText(s)
	case FromInterface:
		return "iif != 0"
	case IsLocal:
		return fibText(s)
	case HasDestinationNAT:
		return "ct status dnat"
	case VerdictOf:
		return keyText(family, s.Key) + " vmap @" + s.Map.Name
	case SetPriority:
		return "meta priority set " + keyText(family, s.Key) + " map @" + s.Map.Name
	case ResetPriority:
		return "meta priority set none"
	case DrawSlot:
		return fmt.Sprintf("meta priority set numgen random mod %d offset %d", s.Slots, s.First)
	case PriorityBetween:
		return fmt.Sprintf("meta priority %s-%s", classText(s.First), classText(s.Last))
	case DNAT:
		return dnatText(family, s)
	case Update:
		return fmt.Sprintf("update @%s { %s timeout %s : %s }",
			s.Map.Name, keyText(family, s.Key), timeoutText(s.Timeout), keyText(family, s.Value))
	case Masquerade:
		return "masquerade fully-random"
	case Reject:
		if s.TCPReset {
			return "reject with tcp reset"
		}
		return "reject"
	case Do:
		return verdictText(s.Verdict)
	}
	panic(fmt.Sprintf("ruleset: statement %T has no text", statement))
}

func notText(not bool) string {
	if not {
		return " != "
	}
	return " "
}

func interfaceText(s NotFromInterface) string {
	if s.Prefix {
		return `iifname != "` + s.Name + `*"`
	}
	return `iifname != "` + s.Name + `"`
}

func fibText(s IsLocal) string {
	side := "saddr"
	if s.Field == DestinationAddr {
		side = "daddr"
	}
	return "fib " + side + " type" + notText(s.Not) + "local"
}

// prefixText is how nft writes a prefix: one that is a single address without its length.
func prefixText(prefix netip.Prefix) string {
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

func dnatText(family model.Family, s DNAT) string {
	text := fmt.Sprintf("dnat %s to %s map @%s", Keyword(family), keyText(family, s.Key), s.Map.Name)
	if s.Port > 0 {
		text += fmt.Sprintf(" : %d", s.Port)
	}
	return text
}

// timeoutText writes a duration in whole seconds, which every version of nft reads; a Service's timeout has no fractions.
func timeoutText(timeout time.Duration) string { return fmt.Sprintf("%ds", int64(timeout/time.Second)) }

func verdictText(verdict Verdict) string {
	switch verdict.Kind {
	case Drop:
		return "drop"
	case Jump:
		return "jump " + verdict.Chain
	case Goto:
		return "goto " + verdict.Chain
	case Return:
		return "return"
	case NoVerdict:
	}
	panic(fmt.Sprintf("ruleset: verdict %d has no text", verdict.Kind))
}

func protocolText(protocol model.Protocol) string { return strings.ToLower(protocol.String()) }

// typeText is how nft declares the type of a set.
func typeText(family model.Family, set Set) string {
	text := "type " + typesText(family, set.Key)
	if set.IsMap() {
		text += " : " + typesText(family, set.Value)
	}
	return text
}

func typesText(family model.Family, types []Type) string {
	texts := make([]string, len(types))
	for i, fieldType := range types {
		texts[i] = typeName(family, fieldType)
	}
	return strings.Join(texts, " . ")
}

func typeName(family model.Family, fieldType Type) string {
	switch fieldType {
	case TypeAddr, TypePrefix:
		if family == model.IPv4 {
			return "ipv4_addr"
		}
		return "ipv6_addr"
	case TypeProto:
		return "inet_proto"
	case TypePort:
		return "inet_service"
	case TypeClass:
		return "classid"
	case TypeVerdict:
		return "verdict"
	}
	panic(fmt.Sprintf("ruleset: type %d has no name", fieldType))
}

// elementText is how nft writes an element of a set.
func elementText(set Set, element Element) string {
	text := element.Key.Text(set.Key)
	switch {
	case !set.IsMap():
		return text
	case set.Value[0] == TypeVerdict:
		return text + " : " + verdictText(element.Verdict)
	}
	return text + " : " + element.Value.Text(set.Value)
}

// Text is how nft writes a key or value of the given types.
func (t Tuple) Text(types []Type) string {
	texts := make([]string, len(types))
	addrs := []netip.Addr{t.Addr, t.Source}
	for i, fieldType := range types {
		switch fieldType {
		case TypeAddr:
			texts[i], addrs = addrs[0].String(), addrs[1:]
		case TypeProto:
			texts[i] = protocolText(t.Proto)
		case TypePort:
			texts[i] = strconv.Itoa(int(t.Port))
		case TypePrefix:
			texts[i] = prefixText(t.prefix())
		case TypeClass:
			texts[i] = classText(t.Number)
		case TypeVerdict:
			panic("ruleset: a verdict is not part of a tuple")
		}
	}
	return strings.Join(texts, " . ")
}

// classText is how nft writes a value of its type classid.
func classText(number uint32) string { return fmt.Sprintf("%x:%x", number>>16, number&0xffff) }
