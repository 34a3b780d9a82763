package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// primary is the entry of nodePortAddresses that stands for the addresses that the Node object names.
const primary = "primary"

// nodePorts reads where node ports are served.
func (c *checker) nodePorts(entries []string) model.NodePortAddresses {
	if len(entries) == 1 && strings.TrimSpace(entries[0]) == primary {
		return model.NodePortAddresses{Primary: true}
	}
	var prefixes []netip.Prefix
	right := true
	for _, entry := range entries {
		prefix, err := parseNodePortCIDR(strings.TrimSpace(entry))
		if err != nil {
			c.wrong("nodePortAddresses", "%v", err)
			right = false
		}
		prefixes = append(prefixes, prefix)
	}
	if !right {
		return model.NodePortAddresses{} // fewer ranges would be fewer addresses, or all of them
	}
	return model.NodePortAddresses{Prefixes: prefixes}
}

// parseNodePortCIDR reads one range, and knows what people write instead of one.
func parseNodePortCIDR(entry string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(entry); err == nil {
		addr = addr.Unmap()
		return netip.Prefix{}, fmt.Errorf("%s is an address and not a CIDR; write %s/%d", entry, addr, addr.BitLen())
	}
	switch strings.ToLower(entry) {
	case "all":
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR; all addresses are 0.0.0.0/0,::/0", entry)
	case primary:
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR; write primary in lower case and alone, or CIDRs alone", entry)
	}
	return parseCIDR(entry)
}
