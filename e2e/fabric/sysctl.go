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

// commonSysctls are set before a namespace has links, which copy the defaults when they are made.
var commonSysctls = []sysctl{
	// Duplicate address detection would keep an IPv6 address unusable for its first second.
	{"net.ipv6.conf.all.accept_dad", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"},
	{"net.ipv6.conf.all.disable_ipv6", "0"},
	{"net.ipv6.conf.default.disable_ipv6", "0"},
	{"net.ipv6.conf.default.accept_ra", "0"},
	// Answers may arrive on another link than the one a route for the client's address names.
	{"net.ipv4.conf.all.rp_filter", "0"},
	{"net.ipv4.conf.default.rp_filter", "0"},
	// A host and the node it goes through are on the same link as the node behind. A redirect would take the node that
	// translates addresses out of the way.
	{"net.ipv4.conf.all.send_redirects", "0"},
	{"net.ipv4.conf.default.send_redirects", "0"},
	{"net.ipv4.conf.all.accept_redirects", "0"},
	{"net.ipv4.conf.default.accept_redirects", "0"},
	{"net.ipv6.conf.all.accept_redirects", "0"},
	{"net.ipv6.conf.default.accept_redirects", "0"},
}

// forwardingSysctls make a node of a machine.
var forwardingSysctls = []sysctl{
	{"net.ipv4.ip_forward", "1"},
	{"net.ipv6.conf.all.forwarding", "1"},
	{"net.ipv6.conf.default.forwarding", "1"},
}

// routedBridgeSysctls make packets of a bridge pass netfilter only where the node routes them. With br_netfilter,
// which not every kernel has, they would pass it on the bridge already.
var routedBridgeSysctls = []sysctl{
	{"net.bridge.bridge-nf-call-iptables", "0"},
	{"net.bridge.bridge-nf-call-ip6tables", "0"},
}

// writeSysctlsIfPresent sets kernel settings that not every kernel has.
func (n *Namespace) writeSysctlsIfPresent(settings []sysctl) error {
	for _, setting := range settings {
		if err := n.writeSysctls([]sysctl{setting}); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SetSysctl sets a kernel setting of the namespace, named as sysctl(8) names it, with dots.
func (n *Namespace) SetSysctl(name, value string) error {
	return n.writeSysctls([]sysctl{{name, value}})
}

// writeSysctls sets kernel settings of the namespace. /proc/sys/net shows those of the thread that opens a file there.
func (n *Namespace) writeSysctls(settings []sysctl) error {
	return n.Do(func() error {
		for _, setting := range settings {
			path := filepath.Join(slices.Concat([]string{"/proc/sys"}, strings.Split(setting.name, "."))...)
			if err := os.WriteFile(path, []byte(setting.value), 0); err != nil {
				return fmt.Errorf("setting %s: %w", setting.name, err)
			}
		}
		return nil
	})
}
