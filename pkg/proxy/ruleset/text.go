package ruleset

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Keyword returns nft's keyword of a family, in front of a table and of an address.
func Keyword(family model.Family) string {
	if family == model.IPv4 {
		return "ip"
	}
	return "ip6"
}

// prefixText returns a prefix in nft's syntax: a single address has no length.
func prefixText(prefix netip.Prefix) string {
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

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

// typeText returns the type of a set in nft's syntax.
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
	case TypeAddr:
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

// elementText returns an element of a set in nft's syntax.
func elementText(set Set, element Element) string {
	text := element.Key.Text(set.Key)
	if element.Comment != "" {
		text += ` comment "` + element.Comment + `"`
	}
	switch {
	case !set.IsMap():
		return text
	case set.MapsVerdicts():
		return text + " : " + verdictText(element.Verdict)
	}
	return text + " : " + element.Value.Text(set.Value)
}

// Text returns a key or value of the given types in nft's syntax.
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
		case TypeClass:
			texts[i] = classText(t.Number)
		case TypeVerdict:
			panic("ruleset: a verdict is not part of a tuple")
		}
	}
	return strings.Join(texts, " . ")
}

// classText returns a value of nft's type classid in nft's syntax.
func classText(number uint32) string { return fmt.Sprintf("%x:%x", number>>16, number&0xffff) }
