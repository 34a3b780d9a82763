//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

func TestInitOnlyWritesKernelSettingsAndEnds(t *testing.T) {
	namespace := netns.New(t)
	var got outcome
	namespace.Do(func() {
		got = proxyCommand(t, splitArgs("run --node node-a --init-only --conntrack-udp-timeout 77s --conntrack-max-per-core 0")...)
	})
	if got.status != 0 || got.stdout != "" {
		t.Errorf("got %+v, want status 0", got)
	}
	const want = `msg="changed a kernel setting" sysctl=net.netfilter.nf_conntrack_udp_timeout`
	if !strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, "desired=77\n") {
		t.Errorf("the log lacks %s:\n%s", want, got.stderr)
	}
	if value := namespace.Exec("cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"); value != "77\n" {
		t.Errorf("the kernel has %q, want 77", value)
	}
	if listed := namespace.NFT("list", "ruleset"); listed != "" {
		t.Errorf("the ruleset is not empty: %s", listed)
	}
}

func TestTheOOMScoreIsSetIfOneIsGiven(t *testing.T) {
	score := func() int {
		text, err := os.ReadFile("/proc/self/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		value, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	before := score()
	initOnly := func(value int) {
		var got outcome
		netns.New(t).Do(func() {
			got = proxyCommand(t, splitArgs(fmt.Sprintf("run --node node-a --init-only --oom-score-adj %d", value))...)
		})
		if got.status != 0 || strings.Contains(got.stderr, "oom") || score() != value {
			t.Errorf("score %d, want %d; %+v", score(), value, got)
		}
	}
	initOnly(before + 1) // raising it is always allowed, and so is restoring the previous value
	initOnly(before)
}

func TestUnwritableSysctlsAreLoggedWithTheFix(t *testing.T) {
	namespace := netns.New(t)
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		namespace.Exec("sh", "-c", "echo 0 > /proc/sys/"+name)
	}
	var got outcome
	namespace.Do(func() {
		got = proxyCommand(t, splitArgs("run --node node-a --init-only --conntrack-min 2000000000")...)
	})
	if got.status != 0 {
		t.Errorf("got %+v, want status 0", got)
	}
	for _, part := range []string{
		`level=WARN msg="failed to set a kernel setting" ` +
			`sysctl=net.netfilter.nf_conntrack_max value=`,
		`desired=2000000000 fix="on the node itself: sysctl -w net.netfilter.nf_conntrack_max=2000000000" error=`,
		`sysctl=net.ipv4.ip_forward value=0 fix="on the node itself: sysctl -w net.ipv4.ip_forward=1"`,
		`sysctl=net.ipv6.conf.all.forwarding value=0`,
	} {
		if !strings.Contains(got.stderr, part) {
			t.Errorf("the log lacks %s:\n%s", part, got.stderr)
		}
	}
}
