package accounting_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

var counters = []string{"vicinity_connections_total", "vicinity_service_connections_total"}

// TestAccountingDoesNotChangeRules checks that rules are the same with and without counting. Without counting, there is no
// listener and no setting changes.
func TestAccountingDoesNotChangeRules(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.add("web", allKeys, endpoint{pod: s.addPod(s.otherZone, "server")})
	s.write()
	rules := func() string {
		t.Helper()
		text, err := s.local.Run(exec.Command("nft", "--stateless", "list", "ruleset"))
		must.Succeed(t, err)
		return text
	}
	without := s.start(s.local, s.command(s.local))
	before := rules()
	if s.hasDestroyListener(s.local) || s.conntrackAcct() != "0" {
		t.Errorf("without --traffic-accounting: listener for destroy events %v, nf_conntrack_acct %s", s.hasDestroyListener(s.local),
			s.conntrackAcct())
	}
	if diff := cmp.Diff(map[string]uint64{}, s.nonzeroSeries(s.local, counters...)); diff != "" {
		t.Errorf("counts without --traffic-accounting (-want +got):\n%s", diff)
	}
	must.Succeed(t, without.Stop(time.Minute))
	s.startCounting(s.local)
	if diff := cmp.Diff(before, rules()); diff != "" {
		t.Errorf("rules (-without --traffic-accounting +with):\n%s", diff)
	}
}

// conntrackAcct returns the value of nf_conntrack_acct on the first node.
func (s *setup) conntrackAcct() (value string) {
	s.t.Helper()
	must.Succeed(s.t, s.local.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_acct")
		value = strings.TrimSpace(string(text))
		return err
	}))
	return value
}

// TestBytesAreCountedWithReadOnlySysctls covers a container with a read-only /proc/sys.
func TestBytesAreCountedWithReadOnlySysctls(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	web := s.add("web", allKeys, endpoint{pod: s.addPod(s.sameZone, "server")})
	s.write()
	s.addReferenceCounters(s.client.Namespace)
	proxy := s.command(s.local, "--traffic-accounting", "services")
	s.start(s.local, exec.Command("unshare", append([]string{
		"--mount", "sh", "-c", `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"`, "sh",
	}, proxy.Args...)...))
	wait.Until(t, "a listener for destroy events", func() bool { return s.hasDestroyListener(s.local) })
	if value := s.conntrackAcct(); value != "1" {
		t.Errorf("nf_conntrack_acct is %s, want 1", value)
	}
	labels := expectedSeries{"same_zone", "topology.kubernetes.io/zone", "zone-a"}
	made := s.request(s.client.Namespace, web, 3)["server"]
	s.end()
	wait.Equal(t, "connections", map[string]uint64{totalOf(labels): made, connectionsOf(web, labels): made},
		func() map[string]uint64 { return s.nonzeroSeries(s.local, counters...) })
	s.expectBytes(map[*service]expectedSeries{web: labels}, s.referenceBytes(s.client.Namespace))
}

// TestDisabledCountersAreEnabledAgain disables conntrack's counters. The proxy enables them again and logs
// it. Connections that started in between are reported as connections without bytes.
func TestDisabledCountersAreEnabledAgain(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	web := s.add("web", allKeys, endpoint{pod: s.addPod(s.sameZone, "server")})
	s.write()
	proxy := s.startCounting(s.local)
	must.Succeed(t, s.local.SetSysctl("net.netfilter.nf_conntrack_acct", "0"))
	made := s.request(s.client.Namespace, web, 1)["server"]
	proxy.Log.WaitFor(t, `msg="another program changed a kernel setting; restored it" sysctl=net.netfilter.nf_conntrack_acct`)
	if value := s.conntrackAcct(); value != "1" {
		t.Errorf("nf_conntrack_acct is %s, want 1", value)
	}
	s.end()
	labels := expectedSeries{"same_zone", "topology.kubernetes.io/zone", "zone-a"}
	const withoutBytes = `vicinity_accounting_not_counted_total{reason="no_counters"}`
	wait.Equal(t, "connections", map[string]uint64{totalOf(labels): made, withoutBytes: made}, func() map[string]uint64 {
		return s.nonzeroSeries(s.local, "vicinity_connections_total", "vicinity_accounting_not_counted_total")
	})
	s.addReferenceCounters(s.client.Namespace)
	made += s.request(s.client.Namespace, web, 1)["server"]
	s.end()
	wait.Equal(t, "connections", map[string]uint64{totalOf(labels): made, withoutBytes: made / 2}, func() map[string]uint64 {
		return s.nonzeroSeries(s.local, "vicinity_connections_total", "vicinity_accounting_not_counted_total")
	})
	s.expectBytes(map[*service]expectedSeries{web: labels}, s.referenceBytes(s.client.Namespace))
}

// TestRemovedEndpointKeepsItsLocality ends connections after their endpoint was removed.
func TestRemovedEndpointKeepsItsLocality(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	removed, added := s.addPod(s.otherZone, "removed"), s.addPod(s.sameZone, "added")
	web := s.add("web", allKeys, endpoint{pod: removed})
	s.write()
	s.startCounting(s.local)
	made := s.request(s.client.Namespace, web, 2)[removed.Name]
	web.endpoints = []endpoint{{pod: added}}
	s.write()
	var more uint64
	wait.Until(t, "another endpoint", func() bool {
		reply, err := s.client.Request("tcp", web.clusterIP(model.IPv4), fabric.Timeout)
		must.Succeed(t, err)
		if reply.Pod == removed.Name {
			made++
			return false
		}
		more++
		return true
	})
	s.end()
	far, near := expectedSeries{"other_zone", "*", "zone-b"}, expectedSeries{"same_zone", "topology.kubernetes.io/zone", "zone-a"}
	wait.Equal(t, "connections", map[string]uint64{
		totalOf(far): made, connectionsOf(web, far): made, totalOf(near): more, connectionsOf(web, near): more,
	}, func() map[string]uint64 { return s.nonzeroSeries(s.local, counters...) })
}
