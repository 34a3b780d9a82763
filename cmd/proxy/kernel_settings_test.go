//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestKernelSettingsAreHeld: the daemon restores the settings that it may write. Those for the administrator are in its
// log, its metrics, and the status until they are correct.
func TestKernelSettingsAreHeld(t *testing.T) {
	namespace, daemon := startZonedNode(t, "--conntrack-udp-timeout", "77s")
	set := func(name, value string) {
		namespace.Exec("sh", "-c", "echo "+value+" > /proc/sys/"+name)
	}
	const udpTimeout, forwarding = "net/netfilter/nf_conntrack_udp_timeout", "net/ipv4/ip_forward"
	hasUnmetValue := func(value string) bool {
		_, body := daemon.get(t, "127.0.0.1:10549", "/metrics")
		return strings.Contains(body, "\n"+`vicinity_kernel_settings_unmet{sysctl="net.ipv4.ip_forward"} `+value+"\n")
	}
	wait.Until(t, "the metric of forwarding, which is off at first", func() bool { return hasUnmetValue("1") })
	set(forwarding, "1")
	wait.Until(t, "the metric after forwarding was enabled", func() bool { return hasUnmetValue("0") })
	set(udpTimeout, "5")
	set(forwarding, "0")
	wait.Until(t, "the metric after forwarding was disabled", func() bool { return hasUnmetValue("1") })
	wait.Until(t, "the desired timeout", func() bool { return namespace.Exec("cat", "/proc/sys/"+udpTimeout) == "77\n" })
	text := proxyIn(t, namespace, "status", "--metrics-bind-address", "127.0.0.1:10549").stdout
	for _, sentence := range []string{
		"net.netfilter.nf_conntrack_udp_timeout has the desired value; another program changed it, and it was restored once, last ",
		"net.ipv4.ip_forward is 0 and should be 1: this node does not forward IPv4 packets, so connections to Services do not reach " +
			"pods on other nodes; on the node itself: sysctl -w net.ipv4.ip_forward=1\n",
	} {
		if !strings.Contains(text, sentence) {
			t.Errorf("the status lacks %q:\n%s", sentence, text)
		}
	}
	set(forwarding, "1")
	wait.Until(t, "the metric after forwarding was enabled again", func() bool { return hasUnmetValue("0") })
	result := daemon.stop(t)
	const (
		restored = `msg="another program changed a kernel setting; restored it" sysctl=net.netfilter.nf_conntrack_udp_timeout value=5 ` +
			`desired=77`
		forwardingOff = `msg="this node does not forward IPv4 packets, so connections to Services do not reach pods on other nodes" ` +
			`sysctl=net.ipv4.ip_forward`
		forwardingOn = `msg="a kernel setting has its desired value again" sysctl=net.ipv4.ip_forward`
	)
	for line, want := range map[string]int{restored: 1, forwardingOff: 2, forwardingOn: 2} {
		if got := strings.Count(result.stderr, line); got != want { // forwarding is off in a new namespace
			t.Errorf("the log has this line %d times, want %d: %s\n%s", got, want, line, result.stderr)
		}
	}
}
