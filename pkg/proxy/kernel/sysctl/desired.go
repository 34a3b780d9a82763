package sysctl

import "time"

// The kernel settings that kube-proxy's nftables mode writes (v1.37; it writes no others), named as sysctl(8) names
// them.
const (
	conntrackMax          = "net.netfilter.nf_conntrack_max"
	conntrackBuckets      = "net.netfilter.nf_conntrack_buckets"
	tcpTimeoutEstablished = "net.netfilter.nf_conntrack_tcp_timeout_established"
	tcpTimeoutCloseWait   = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"
	tcpBeLiberal          = "net.netfilter.nf_conntrack_tcp_be_liberal"
	udpTimeout            = "net.netfilter.nf_conntrack_udp_timeout"
	udpTimeoutStream      = "net.netfilter.nf_conntrack_udp_timeout_stream"
)

// maxEntries is kube-proxy's maximum for any number of cores: each entry takes kernel memory.
const maxEntries = 1 << 20

// entriesPerBucket is the maximum number of connections that share a list of the kernel's hash table.
const entriesPerBucket = 4

// DesiredValue is a kernel setting and the value that it should have.
type DesiredValue struct {
	// Name is the name of the setting, with dots.
	Name string
	// Value is in the kernel's unit: seconds, for timeouts.
	Value int64
	// AtLeast is set if a larger value also satisfies it.
	AtLeast bool
	// ZeroIsUnlimited is set if 0 means no limit, and thus also satisfies it.
	ZeroIsUnlimited bool
}

// The settings that a node needs to forward packets to pods on other nodes. They are checked and never written: more
// than Services depends on them, above all firewalls, so they are up to the administrator.
var (
	ForwardingIPv4 = DesiredValue{Name: "net.ipv4.ip_forward", Value: 1}
	ForwardingIPv6 = DesiredValue{Name: "net.ipv6.conf.all.forwarding", Value: 1}
)

// The settings that traffic accounting needs. ConntrackBytes makes conntrack count bytes; it is set and never reset,
// because other programs may rely on it. ConntrackEvents makes conntrack report connections that end; it is up to the
// administrator.
var (
	ConntrackBytes  = DesiredValue{Name: "net.netfilter.nf_conntrack_acct", Value: 1}
	ConntrackEvents = DesiredValue{Name: "net.netfilter.nf_conntrack_events", Value: 1, AtLeast: true}
)

// LeftoverSettings are the values that settings had before kube-proxy changed them: route_localnet in iptables mode,
// for node ports on loopback, the others in IPVS mode with strictARP. The changes outlive kube-proxy.
var LeftoverSettings = []DesiredValue{
	{Name: "net.ipv4.conf.all.route_localnet"},
	{Name: "net.ipv4.conf.all.arp_ignore"},
	{Name: "net.ipv4.conf.all.arp_announce"},
}

// Conntrack is the desired connection tracking: kube-proxy's section conntrack. A setting with the value 0 remains
// unchanged.
type Conntrack struct {
	// MaxPerCore is the maximum number of tracked connections, for each core of the machine. If it is 0, Min has no
	// effect.
	MaxPerCore int32
	// Min is the lower limit of that maximum, for a machine with few cores.
	Min int32
	// TCPEstablishedTimeout and TCPCloseWaitTimeout are how long a TCP connection without packets is tracked.
	TCPEstablishedTimeout, TCPCloseWaitTimeout time.Duration
	// TCPBeLiberal tracks TCP packets outside of the window as part of their connection.
	TCPBeLiberal bool
	// UDPTimeout and UDPStreamTimeout are how long a UDP flow without packets is tracked: before and after it had packets
	// in both directions.
	UDPTimeout, UDPStreamTimeout time.Duration
}

// Settings returns the kernel settings for the configuration, on a machine with the given number of cores.
//
// kube-proxy also lowers the maximum number of connections to its own value. Here a larger one stays: it was raised for
// a reason, and lowering it makes the kernel drop connections.
func (c Conntrack) Settings(cores int) []DesiredValue {
	var desired []DesiredValue
	if entries := c.entries(cores); entries > 0 {
		desired = append(desired,
			// A maximum of zero means no limit (nf_conntrack_max in the kernel's nf_conntrack_core.c).
			DesiredValue{Name: conntrackMax, Value: entries, AtLeast: true, ZeroIsUnlimited: true},
			// Lists of more than four entries make every lookup slow. kube-proxy writes the module's parameter hashsize, which
			// is the same value.
			DesiredValue{Name: conntrackBuckets, Value: entries / entriesPerBucket, AtLeast: true})
	}
	for _, timeout := range []struct {
		name  string
		value time.Duration
	}{
		{tcpTimeoutEstablished, c.TCPEstablishedTimeout},
		{tcpTimeoutCloseWait, c.TCPCloseWaitTimeout},
		{udpTimeout, c.UDPTimeout},
		{udpTimeoutStream, c.UDPStreamTimeout},
	} {
		if timeout.value > 0 {
			desired = append(desired, DesiredValue{Name: timeout.name, Value: int64(timeout.value / time.Second)})
		}
	}
	if c.TCPBeLiberal {
		desired = append(desired, DesiredValue{Name: tcpBeLiberal, Value: 1})
	}
	return desired
}

// entries returns how many connections the kernel should track; 0 leaves the kernel's limit unchanged.
func (c Conntrack) entries(cores int) int64 {
	if c.MaxPerCore <= 0 {
		return 0
	}
	return max(min(int64(c.MaxPerCore)*int64(cores), maxEntries), int64(c.Min))
}

// isSatisfied reports whether a value satisfies the desired one.
func (v DesiredValue) isSatisfied(value int64) bool {
	return value == v.Value || v.AtLeast && value > v.Value || v.ZeroIsUnlimited && value == 0
}
