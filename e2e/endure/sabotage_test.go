package endure_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// sabotage is an input of nft. The parts of the tables that it names exist while the Services web and sticky do.
type sabotage struct {
	name, text string
	// families are those whose table it modifies.
	families []string
}

var ipv4Only, bothFamilies = []string{"IPv4"}, []string{"IPv4", "IPv6"}

var sabotages = []sabotage{
	{"a flushed ruleset", "flush ruleset", bothFamilies},
	{"a flushed family", "flush ruleset ip6", []string{"IPv6"}},
	{"a deleted table", "delete table ip vicinity", ipv4Only},
	{"a deleted frontend", "delete element ip vicinity services { 10.96.0.10 . tcp . 80 }", ipv4Only},
	{"a deleted endpoint", "delete element ip vicinity endpoints { 10.96.0.10 . tcp . 80 . fd00:0 }", ipv4Only},
	{"a deleted class", "delete element ip vicinity dispatch { fe00:2 }", ipv4Only},
	{"an added frontend", "add element ip vicinity services { 10.96.0.99 . tcp . 80 : fe00:2 }", ipv4Only},
	{"a flushed map", "flush map ip6 vicinity endpoints", []string{"IPv6"}},
	{"a flushed chain", "flush chain ip vicinity services", ipv4Only},
	{"a deleted base chain", "delete chain ip vicinity nat-prerouting", ipv4Only},
	{"a renamed base chain", "rename chain ip vicinity nat-prerouting theirs", ipv4Only},
	{"a renamed chain that elements jump to", "rename chain ip vicinity lb-2 theirs", ipv4Only},
	{"a base chain that drops", "chain ip vicinity nat-prerouting { policy drop; }", ipv4Only},
	{"a base chain at another priority", "delete chain ip vicinity nat-prerouting; " +
		"add chain ip vicinity nat-prerouting { type nat hook prerouting priority 0; }", ipv4Only},
	{"a deleted rule", "delete rule ip vicinity nat-postrouting handle " + handlePlaceholder, ipv4Only},
	{"a rule before ours", "insert rule ip vicinity services drop", ipv4Only},
	{"a rule after ours", "add rule ip vicinity nat-postrouting counter", ipv4Only},
	{"a foreign chain and set", "add chain ip vicinity theirs; add rule ip vicinity theirs drop; " +
		"add set ip vicinity others { type ipv4_addr; }; add rule ip vicinity nat-prerouting ip saddr @others jump theirs", ipv4Only},
	{"a deleted set", "flush table ip vicinity; delete set ip vicinity hairpin", ipv4Only},
	{"a map of another type", "flush table ip vicinity; delete map ip vicinity services; " +
		"add map ip vicinity services { type ipv4_addr : ipv4_addr; }", ipv4Only},
	{"a map with another size", "flush table ip vicinity; delete map ip vicinity endpoints; add map ip vicinity endpoints { " +
		"type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr . inet_service; size 1; }", ipv4Only},
	{"a map with a timeout", "flush table ip vicinity; delete map ip vicinity endpoints; add map ip vicinity endpoints { " +
		"type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr . inet_service; timeout 1s; }", ipv4Only},
	{"a dormant table", "add table ip vicinity { flags dormant; }", ipv4Only},
}

// handlePlaceholder is a placeholder for the handle of our first rule in nat-postrouting, which changes with every repair.
const handlePlaceholder = "HANDLE"

// nftInput returns the input of nft for a sabotage of the current tables.
func (s *setup) nftInput(act sabotage) string {
	s.t.Helper()
	listing, err := s.run("nft", "-a", "list", "chain", "ip", "vicinity", "nat-postrouting")
	must.Succeed(s.t, err)
	handles := regexp.MustCompile(`# handle (\d+)\n`).FindAllStringSubmatch(listing, 2) // the chain's and the rule's
	if len(handles) != 2 {
		s.t.Fatalf("no rule in:\n%s", listing)
	}
	return strings.ReplaceAll(act.text, handlePlaceholder, handles[1][1])
}

// openConnection is an open connection, and the endpoint that replies on it.
type openConnection struct {
	conn *fabric.Connection
	pod  string
}

// openConnections opens TCP connections that send nothing until the tables are repaired. While a namespace has no NAT chain at
// all, as after a flush, the kernel does not translate the packets of open connections either, and one that sends data
// then may be reset. Only owned tables prevent that.
func (s *setup) openConnections() []openConnection {
	s.t.Helper()
	var all []openConnection
	for _, client := range []*fabric.Namespace{s.clients[0], s.outside, s.node.Namespace} {
		conn := openTo(s.t, client, "tcp", sticky.nodePort(s.node.IPv4))
		reply, err := conn.Request(requestTimeout)
		must.Succeed(s.t, err)
		all = append(all, openConnection{conn, reply.Pod})
	}
	return all
}

// checkConnections checks that connections which were opened before are alive, and that new ones work.
func (s *setup) checkConnections(all []openConnection) {
	s.t.Helper()
	for _, open := range all {
		if reply, err := open.conn.Request(requestTimeout); err != nil || reply.Pod != open.pod {
			s.t.Errorf("on an open connection %q responds, want %q (%v)", reply.Pod, open.pod, err)
		}
	}
	for _, client := range []*fabric.Namespace{s.clients[0], s.outside, s.node.Namespace} {
		for _, network := range []string{"tcp", "udp"} {
			if _, err := client.Request(network, web.nodePort(s.node.IPv4), requestTimeout); err != nil {
				s.t.Errorf("a new connection: %v", err)
			}
		}
	}
}

// TestExternalModificationsAreRepairedAndReported requires the documented time: one second.
func TestExternalModificationsAreRepairedAndReported(t *testing.T) {
	s := newSetup(t)
	s.write(web, "a", "b")
	s.write(sticky, "a", "b")
	d := s.start("--own-tables", "never")
	d.waitForSync()
	want, saboteur := s.tables(), site.Saboteur(t)
	for _, act := range sabotages {
		t.Run(act.name, func(t *testing.T) {
			s.t = t
			all, before, input := s.openConnections(), d.externalChanges(), s.nftInput(act)
			began := time.Now()
			process, err := s.node.Start(exec.Command(saboteur, input))
			must.Succeed(t, err)
			must.Succeed(t, process.Wait())
			s.waitForTables(want, 5*time.Second)
			t.Logf("repaired within %s", time.Since(began))
			d.waitForExternalChange(act, before)
			line := fmt.Sprintf("process=saboteur pid=%d families=", process.PID())
			d.Log.WaitFor(t, line)
			if times := d.Log.Count(line); times != 1 {
				t.Errorf("the log has %d lines with %s, want 1", times, line)
			}
			s.checkConnections(all)
		})
	}
	s.t = t
	d.kill()
	s.compareWithFreshStart("--own-tables", "never")
}

// externalChanges returns the counters of external modifications, by family.
func (d *daemon) externalChanges() map[string]int {
	counts := map[string]int{}
	for _, family := range bothFamilies {
		counts[family] = d.metric("vicinity_nft_external_changes_total", `ip_family="`+family+`",stage="detected"`)
	}
	return counts
}

// waitForExternalChange waits until a sabotage is counted, once for each family that it modified.
func (d *daemon) waitForExternalChange(act sabotage, before map[string]int) {
	d.setup.t.Helper()
	for _, family := range act.families {
		before[family]++
	}
	var current map[string]int
	wait.Until(d.setup.t, act.name+" is counted", func() bool {
		current = d.externalChanges()
		return current["IPv4"] >= before["IPv4"] && current["IPv6"] >= before["IPv6"]
	})
	if diff := cmp.Diff(before, current); diff != "" {
		d.setup.t.Errorf("%s: wrong counters (-want +got):\n%s", act.name, diff)
	}
}

// TestOwnedTablesRejectExternalModifications checks that the kernel rejects them, so that there is nothing to repair
// or to report.
func TestOwnedTablesRejectExternalModifications(t *testing.T) {
	s := newSetup(t)
	s.write(web, "a", "b")
	s.write(sticky, "a", "b")
	d := s.start()
	d.waitForSync()
	want, saboteur, transactions, all := s.tables(), site.Saboteur(t), s.transactions(), s.openConnections()
	for _, act := range sabotages {
		t.Run(act.name, func(t *testing.T) {
			s.t = t
			_, err := s.run(saboteur, s.nftInput(act))
			if isFlush := strings.HasPrefix(act.text, "flush ruleset"); isFlush && err != nil {
				t.Errorf("got %v, want none: the kernel skips owned tables", err)
			} else if !isFlush && (err == nil || !strings.Contains(err.Error(), "Operation not permitted")) {
				t.Errorf("got %v, want EPERM", err)
			}
			if diff := cmp.Diff(want, s.tables()); diff != "" {
				t.Errorf("the tables changed (-before +after):\n%s", diff)
			}
		})
	}
	s.t = t
	s.checkConnections(all)
	if counted := d.externalChanges(); counted["IPv4"]+counted["IPv6"] > 0 {
		t.Errorf("%v changes are counted, want none", counted)
	}
	if made := s.transactions() - transactions; made > 0 {
		t.Errorf("the tables were written %d times, want none", made)
	}
	d.kill()
}

// TestModificationsWithLostNotificationsAreRepaired makes so many external modifications while the proxy is stopped that
// the kernel drops notifications. The kernel does report that it dropped some.
func TestModificationsWithLostNotificationsAreRepaired(t *testing.T) {
	s := newSetup(t)
	s.write(web, "a", "b")
	s.write(sticky, "a", "b")
	d := s.start("--own-tables", "never")
	d.waitForSync()
	want := s.tables()
	must.Succeed(t, d.Signal(syscall.SIGSTOP))
	input := filepath.Join(t.TempDir(), "order")
	must.Succeed(t, os.WriteFile(input, []byte(manyAddresses(100_000)), 0o600))
	_, err := s.run("nft", "-f", input)
	must.Succeed(t, err)
	_, err = s.run("nft", "delete table ip foreign; flush ruleset")
	must.Succeed(t, err)
	must.Succeed(t, d.Signal(syscall.SIGCONT))
	s.waitForTables(want, waitTimeout)
	d.Log.WaitFor(t, "changes of nftables may have been missed")
	d.kill()
}

// manyAddresses returns a foreign table with a set of number elements.
func manyAddresses(number int) string {
	var text strings.Builder
	text.WriteString("table ip foreign {\n\tset addresses {\n\t\ttype ipv4_addr\n\t\telements = { ")
	for i := range number {
		fmt.Fprintf(&text, "10.%d.%d.%d, ", i>>16, i>>8&0xff, i&0xff)
	}
	text.WriteString("}\n\t}\n}\n")
	return text.String()
}
