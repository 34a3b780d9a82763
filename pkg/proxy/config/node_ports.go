package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// primary is the entry of nodePortAddresses that stands for the addresses in the Node object.
const primary = "primary"

// nodePortRanges are the other keywords of nodePortAddresses, which stand for ranges. kube-proxy supports them, and
// several entries in addition to primary, since 1.37 (KEP-6032).
var nodePortRanges = map[string][]netip.Prefix{
	"all":       {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	"localhost": {model.LoopbackPrefix(model.IPv4), model.LoopbackPrefix(model.IPv6)},
}

// nodePorts reads the addresses on which node ports are served.
func (c *checker) nodePorts(entries []string) model.NodePortAddresses {
	var addresses model.NodePortAddresses
	isValid := true
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if entry == primary {
			addresses.Primary = true
			continue
		}
		prefixes, err := parseNodePortEntry(entry)
		if err != nil {
			c.addError("nodePortAddresses", "%v", err)
			isValid = false
		}
		addresses.Prefixes = append(addresses.Prefixes, prefixes...)
	}
	if !isValid {
		return model.NodePortAddresses{} // fewer ranges would mean fewer addresses, or all of them
	}
	return addresses
}

// nodeAddress reads bindAddress. No socket is bound to it: kube-proxy uses it as the node's address of its family,
// unless it is unspecified or loopback.
func (c *checker) nodeAddress(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		c.addError("bindAddress", "%q is not an IP address", text)
	}
	if addr = addr.Unmap().WithZone(""); addr.IsUnspecified() || addr.IsLoopback() {
		return netip.Addr{}
	}
	return addr
}

// parseNodePortEntry reads a range or a keyword, and detects common mistakes.
func parseNodePortEntry(entry string) ([]netip.Prefix, error) {
	if prefixes, ok := nodePortRanges[entry]; ok {
		return prefixes, nil
	}
	if addr, err := netip.ParseAddr(entry); err == nil {
		addr = addr.Unmap()
		return nil, fmt.Errorf("%s is an address and not a CIDR; write %s/%d", entry, addr, addr.BitLen())
	}
	word := strings.ToLower(entry)
	if _, ok := nodePortRanges[word]; ok || word == primary {
		return nil, fmt.Errorf("%q is not a CIDR; write %s in lower case", entry, word)
	}
	prefix, err := parseCIDR(entry)
	return []netip.Prefix{prefix}, err
}
