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

// TestPacketsMeetTheSameRules checks that rules are the same with and without counting. Without counting, there is no
// listener and no setting changes.
func TestPacketsMeetTheSameRules(t *testing.T) {
	t.Parallel()
	s := newTown(t)
	s.add("web", allKeys, endpoint{pod: s.addPod(s.across, "server")})
	s.write()
	rules := func() string {
		t.Helper()
		text, err := s.local.Run(exec.Command("nft", "--stateless", "list", "ruleset"))
		must.Succeed(t, err)
		return text
	}
	without := s.start(s.local, s.command(s.local))
	before := rules()
	if s.listens(s.local) || s.countsBytes() != "0" {
		t.Errorf("without --traffic-accounting: listener for destroy events %v, nf_conntrack_acct %s", s.listens(s.local), s.countsBytes())
	}
	if diff := cmp.Diff(map[string]uint64{}, s.numbers(s.local, counters...)); diff != "" {
		t.Errorf("counted without --traffic-accounting:\n%s", diff)
	}
	must.Succeed(t, without.Stop(time.Minute))
	s.count(s.local)
	if diff := cmp.Diff(before, rules()); diff != "" {
		t.Errorf("rules (-without --traffic-accounting +with):\n%s", diff)
	}
}

// countsBytes returns the value of nf_conntrack_acct on the first node.
func (s *town) countsBytes() (value string) {
	s.t.Helper()
	must.Succeed(s.t, s.local.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_acct")
		value = strings.TrimSpace(string(text))
		return err
	}))
	return value
}

// TestBytesAreCountedThoughSettingsCannotBeWritten covers a container with a read-only /proc/sys.
func TestBytesAreCountedThoughSettingsCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newTown(t)
	web := s.add("web", allKeys, endpoint{pod: s.addPod(s.beside, "server")})
	s.write()
	s.verify(s.client.Namespace)
	proxy := s.command(s.local, "--traffic-accounting", "services")
	s.start(s.local, exec.Command("unshare", append([]string{
		"--mount", "sh", "-c", `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"`, "sh",
	}, proxy.Args...)...))
	wait.Until(t, "a listener for destroy events", func() bool { return s.listens(s.local) })
	if value := s.countsBytes(); value != "1" {
		t.Errorf("nf_conntrack_acct is %s", value)
	}
	at := expectedSeries{"same_zone", "topology.kubernetes.io/zone", "zone-a"}
	made := s.request(s.client.Namespace, web, 3)["server"]
	s.end()
	wait.Equal(t, "connections", map[string]uint64{inAll(at): made, connectionsOf(web, at): made},
		func() map[string]uint64 { return s.numbers(s.local, counters...) })
	s.expectBytes(map[*service]expectedSeries{web: at}, s.verified(s.client.Namespace))
}

// TestCountingContinuesThoughSomebodyDisablesIt disables conntrack's counters. The proxy enables them again and logs
// it. Connections that started in between are reported as connections without bytes.
func TestCountingContinuesThoughSomebodyDisablesIt(t *testing.T) {
	t.Parallel()
	s := newTown(t)
	web := s.add("web", allKeys, endpoint{pod: s.addPod(s.beside, "server")})
	s.write()
	proxy := s.count(s.local)
	must.Succeed(t, s.local.SetSysctl("net.netfilter.nf_conntrack_acct", "0"))
	made := s.request(s.client.Namespace, web, 1)["server"]
	proxy.Log.WaitFor(t, `msg="another program changed a kernel setting; restored it" sysctl=net.netfilter.nf_conntrack_acct`)
	if value := s.countsBytes(); value != "1" {
		t.Errorf("nf_conntrack_acct is %s", value)
	}
	s.end()
	at := expectedSeries{"same_zone", "topology.kubernetes.io/zone", "zone-a"}
	const withoutBytes = `vicinity_accounting_not_counted_total{reason="no_counters"}`
	wait.Equal(t, "connections", map[string]uint64{inAll(at): made, withoutBytes: made}, func() map[string]uint64 {
		return s.numbers(s.local, "vicinity_connections_total", "vicinity_accounting_not_counted_total")
	})
	s.verify(s.client.Namespace)
	made += s.request(s.client.Namespace, web, 1)["server"]
	s.end()
	wait.Equal(t, "connections", map[string]uint64{inAll(at): made, withoutBytes: made / 2}, func() map[string]uint64 {
		return s.numbers(s.local, "vicinity_connections_total", "vicinity_accounting_not_counted_total")
	})
	s.expectBytes(map[*service]expectedSeries{web: at}, s.verified(s.client.Namespace))
}

// TestARemovedEndpointIsCountedWhereItWas ends connections after their endpoint was removed.
func TestARemovedEndpointIsCountedWhereItWas(t *testing.T) {
	t.Parallel()
	s := newTown(t)
	leaves, comes := s.addPod(s.across, "removed"), s.addPod(s.beside, "added")
	web := s.add("web", allKeys, endpoint{pod: leaves})
	s.write()
	s.count(s.local)
	made := s.request(s.client.Namespace, web, 2)[leaves.Name]
	web.endpoints = []endpoint{{pod: comes}}
	s.write()
	var more uint64
	wait.Until(t, "another endpoint", func() bool {
		reply, err := s.client.Request("tcp", web.clusterIP(model.IPv4), fabric.Timeout)
		must.Succeed(t, err)
		if reply.Pod == leaves.Name {
			made++
			return false
		}
		more++
		return true
	})
	s.end()
	far, near := expectedSeries{"other_zone", "*", "zone-b"}, expectedSeries{"same_zone", "topology.kubernetes.io/zone", "zone-a"}
	wait.Equal(t, "connections", map[string]uint64{
		inAll(far): made, connectionsOf(web, far): made, inAll(near): more, connectionsOf(web, near): more,
	}, func() map[string]uint64 { return s.numbers(s.local, counters...) })
}
