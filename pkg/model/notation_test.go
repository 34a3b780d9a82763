package model

import (
	"net/netip"
	"strings"
)

// addrs parses addresses separated by spaces.
func addrs(text string) []netip.Addr {
	var parsed []netip.Addr
	for word := range strings.FieldsSeq(text) {
		parsed = append(parsed, netip.MustParseAddr(word))
	}
	return parsed
}

// prefixes parses prefixes separated by spaces.
func prefixes(text string) []netip.Prefix {
	var parsed []netip.Prefix
	for word := range strings.FieldsSeq(text) {
		parsed = append(parsed, netip.MustParsePrefix(word))
	}
	return parsed
}

// texts formats values, separated by spaces.
func texts[V interface{ String() string }](values []V) string {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = value.String()
	}
	return strings.Join(words, " ")
}
