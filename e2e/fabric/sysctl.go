package fabric

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sysctl is a kernel setting of one network namespace.
type sysctl struct{ name, value string }

// commonSysctls are set before a namespace has links, because new links copy the defaults.
var commonSysctls = []sysctl{
	// Duplicate address detection would make an IPv6 address unusable for its first second.
	{"net.ipv6.conf.all.accept_dad", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"},
	{"net.ipv6.conf.all.disable_ipv6", "0"},
	{"net.ipv6.conf.default.disable_ipv6", "0"},
	{"net.ipv6.conf.default.accept_ra", "0"},
	// Responses may arrive on another link than the one that the route to the client names.
	{"net.ipv4.conf.all.rp_filter", "0"},
	{"net.ipv4.conf.default.rp_filter", "0"},
	// A host and its gateway node are on the same link as the other nodes. A redirect would bypass the node that
	// translates addresses.
	{"net.ipv4.conf.all.send_redirects", "0"},
	{"net.ipv4.conf.default.send_redirects", "0"},
	{"net.ipv4.conf.all.accept_redirects", "0"},
	{"net.ipv4.conf.default.accept_redirects", "0"},
	{"net.ipv6.conf.all.accept_redirects", "0"},
	{"net.ipv6.conf.default.accept_redirects", "0"},
}

// forwardingSysctls make a machine a node.
var forwardingSysctls = []sysctl{
	{"net.ipv4.ip_forward", "1"},
	{"net.ipv6.conf.all.forwarding", "1"},
	{"net.ipv6.conf.default.forwarding", "1"},
}

// routedBridgeSysctls make packets of a bridge pass netfilter only where the node routes them. With br_netfilter, which
// not every kernel has, they would already pass it on the bridge.
var routedBridgeSysctls = []sysctl{
	{"net.bridge.bridge-nf-call-iptables", "0"},
	{"net.bridge.bridge-nf-call-ip6tables", "0"},
}

// writeSysctlsIfPresent sets kernel settings, and skips those that this kernel lacks.
func (n *Namespace) writeSysctlsIfPresent(settings []sysctl) error {
	for _, setting := range settings {
		if err := n.writeSysctls([]sysctl{setting}); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SetSysctl sets a kernel setting of the namespace. name has dots, as in sysctl(8).
func (n *Namespace) SetSysctl(name, value string) error {
	return n.writeSysctls([]sysctl{{name, value}})
}

// writeSysctls sets kernel settings of the namespace. /proc/sys/net shows the settings of the thread that opens the
// file.
func (n *Namespace) writeSysctls(settings []sysctl) error {
	return n.Do(func() error {
		for _, setting := range settings {
			path := filepath.Join(slices.Concat([]string{"/proc/sys"}, strings.Split(setting.name, "."))...)
			if err := os.WriteFile(path, []byte(setting.value), 0); err != nil {
				return fmt.Errorf("set %s: %w", setting.name, err)
			}
		}
		return nil
	})
}
