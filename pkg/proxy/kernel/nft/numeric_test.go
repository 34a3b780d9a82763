//go:build linux

package nft

import (
	"regexp"
	"strings"
)

// numerals replaces words by the numbers that nft -n lists for them: protocols, the kind of an address (RTN_LOCAL of
// linux/rtnetlink.h) and conntrack's states (IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h, and NFT_CT_STATE).
var numerals = strings.NewReplacer("tcp", "6", "udp", "17", "sctp", "132", "local", "2", "dnat", "0x20", "new", "0x8")

// numberWords finds such words if they stand for numbers: after a field that a rule compares, and as a field of an
// element, before the port. In `reject with tcp reset`, in `dnat to` and in names they remain words.
var numberWords = regexp.MustCompile(`\b(l4proto|type|type !=|status|state) (tcp|udp|sctp|local|dnat|new)\b|\b(tcp|udp|sctp) \. `)

// normalizeNumbers normalizes the lines of a listing, as normalize does, and converts words into numbers as nft -n does.
// Numbers are unchanged.
func normalizeNumbers(listing string) []string {
	return normalize(numberWords.ReplaceAllStringFunc(spellings.Replace(listing), numerals.Replace))
}
