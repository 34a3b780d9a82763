package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// primary is the entry of nodePortAddresses that stands for the addresses that the Node object names.
const primary = "primary"

// nodePortRanges are the other words of nodePortAddresses, which stand for ranges. kube-proxy knows them, and takes
// several entries beside primary, since 1.37 (KEP-6032).
var nodePortRanges = map[string][]netip.Prefix{
	"all":       {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	"localhost": {model.LoopbackPrefix(model.IPv4), model.LoopbackPrefix(model.IPv6)},
}

// nodePorts reads where node ports are served.
func (c *checker) nodePorts(entries []string) model.NodePortAddresses {
	var addresses model.NodePortAddresses
	right := true
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if entry == primary {
			addresses.Primary = true
			continue
		}
		prefixes, err := parseNodePortEntry(entry)
		if err != nil {
			c.wrong("nodePortAddresses", "%v", err)
			right = false
		}
		addresses.Prefixes = append(addresses.Prefixes, prefixes...)
	}
	if !right {
		return model.NodePortAddresses{} // fewer ranges would be fewer addresses, or all of them
	}
	return addresses
}

// nodeAddress reads bindAddress, which binds nothing: kube-proxy takes it for the node's address of its family. Neither
// all addresses nor loopback is one.
func (c *checker) nodeAddress(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		c.wrong("bindAddress", "%q is not an IP address", text)
	}
	if addr = addr.Unmap().WithZone(""); addr.IsUnspecified() || addr.IsLoopback() {
		return netip.Addr{}
	}
	return addr
}

// parseNodePortEntry reads a range, or a word that stands for some, and knows what people write instead of one.
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
