//go:build linux

package nft

import (
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// nfproto returns the kernel's number of a family (NFPROTO_*).
func nfproto(family model.Family) byte {
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

// tableText returns nft's name of our table, such as "ip vicinity".
func tableText(family model.Family) string { return ruleset.Keyword(family) + " " + ruleset.TableName }
