//go:build linux

package nft

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
	"golang.org/x/sys/unix"
)

// number is the kernel's number of a family (NFPROTO_*).
func number(family model.Family) byte {
	if family == model.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

func addrSize(family model.Family) int {
	if family == model.IPv4 {
		return 4
	}
	return 16
}

// tableText names our table as nft does: ip vicinity.
func tableText(family model.Family) string { return keyword(family) + " " + ruleset.TableName }

// keyword is what nft calls a family.
func keyword(family model.Family) string {
	if family == model.IPv4 {
		return "ip"
	}
	return "ip6"
}
