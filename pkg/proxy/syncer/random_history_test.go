package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	traffic "github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const self = "node-0"

var (
	podRanges    = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	bothFamilies = ruleset.Config{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{Prefixes: podRanges}}
)

// configurations have each setting that an administrator may choose at least once.
var configurations = []ruleset.Config{
	bothFamilies,
	{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{PodCIDRs: true}, NodePorts: model.NodePortAddresses{Primary: true}},
	{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{Interface: "cbr0"}, MasqueradeAll: true},
	{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{InterfacePrefix: "cali"}, NodePorts: model.NodePortAddresses{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/24"), netip.MustParsePrefix("::/0")}}},
	{Families: model.Families},
	{Families: []model.Family{model.IPv6}, LocalTraffic: ruleset.LocalTraffic{Prefixes: podRanges[1:]}, NodePorts: model.NodePortAddresses{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:172::/64")}}},
}

// switches enable events other than changes of the cluster.
type switches struct {
	faults           bool // netlink fails, the kernel rejects Services, and the proxy restarts
	externalDeletion bool // another process deletes parts of the tables
	large            bool // a tenant's Services exceed one batch
}

// machine is a proxy with a random history. Invariants are checked after each transaction and each step.
type machine struct {
	switches
	t                  testing.TB
	config             ruleset.Config
	random             *rand.Rand // for all but the changes
	changes            *history
	everything         model.Change
	kernel             *memoryKernel
	inner              syncer.Kernel // kernel, or a real one that has the same tables
	faults             *faultInjector
	additionalHandlers []selection.Handler
	proxy              *syncer.Proxy
	traffic            *traffic.Index
	model              *handlerModel
	allowed            map[frontendEndpoint]bool // what any version of the cluster allowed
	numbers            map[affinityClients]map[netip.AddrPort][]uint32
	ranges             []netip.Prefix // the PodCIDRs of the node at the last sync
	// externallyModified is set if something was deleted that the proxy may not know of. uncertain is set if a commit was
	// applied although it failed.
	externallyModified, uncertain bool
	failedSyncs, lostFrontends    int // failed syncs, and frontends that Services lost while they still exist
}

func newMachine(t testing.TB, seed uint64, enabled switches, memory *memoryKernel, inner syncer.Kernel,
	additional ...selection.Handler) *machine {
	m := &machine{
		switches: enabled, t: t, config: configurations[seed%uint64(len(configurations))], random: rand.New(rand.NewPCG(seed, 1)),
		changes: newHistory(seed), kernel: memory, inner: inner, additionalHandlers: additional, allowed: map[frontendEndpoint]bool{},
	}
	m.faults = &faultInjector{Kernel: inner, random: m.random, counts: map[string]int{}, committed: m.committed}
	m.restart()
	return m
}

// restart starts a new proxy, with new handlers.
func (m *machine) restart() {
	m.model, m.traffic = newHandlerModel(m.t), traffic.New(0)
	m.proxy = syncer.New(self, m.config, m.faults, append([]selection.Handler{m.model, m.traffic}, m.additionalHandlers...)...)
	m.proxy.RetryMax = 1 // rejected Services are retried by the next sync
	m.proxy.Apply(m.everything)
	m.ranges = nil
}

// applyChange applies a random change, without a sync.
func (m *machine) applyChange() {
	change := m.changes.change()
	for range 3 {
		if m.large {
			change = change.Merge(m.changes.tenant())
		}
	}
	m.everything = mergeAs(self, m.everything, change)
	m.proxy.Apply(change)
	m.proxy.AllowReplanning()
}

// freshStart is the result of a start with the current cluster, in a kernel that has only the numbers of session
// affinity.
type freshStart struct {
	kernel *memoryKernel
	model  *handlerModel
	report syncer.Report
}

func (m *machine) fresh() freshStart {
	m.t.Helper()
	started := freshStart{kernel: &memoryKernel{numbers: numbersIn(m.kernel)}, model: newHandlerModel(m.t)}
	p := syncer.New(self, m.config, started.kernel, started.model)
	p.Apply(m.everything)
	started.report = mustSync(m.t, p)
	return started
}

// step makes a change, and injects the enabled events during some syncs. Then these end, and everything must be
// repaired.
func (m *machine) step() {
	m.t.Helper()
	m.applyChange()
	if m.switches != (switches{}) {
		start := m.fresh()
		for _, family := range m.config.Families {
			for _, balancing := range balancingIn(m.t, start.kernel, family) {
				maps.Insert(m.allowed, maps.All(balancing.frontendEndpoints()))
			}
		}
		if m.faults.percent.Store(50); !m.switches.faults { // so that several in a row fail
			m.faults.percent.Store(0)
		}
		for range m.random.IntN(6) {
			if m.switches.faults && m.random.IntN(8) == 0 {
				m.restart()
			}
			if m.externalDeletion && m.random.IntN(3) == 0 {
				m.modifyExternally()
			}
			m.sync()
		}
		if m.large {
			m.checkSmallServices(start)
		}
		m.faults.percent.Store(0)
	}
	if m.externallyModified { // finally the kernel reports that a notification was lost
		m.proxy.ForceFullSync()
	}
	report := m.repair()
	m.externallyModified, m.uncertain = false, false
	m.checkConverged(report)
}

// repair syncs without faults until nothing waits. Each sync must succeed, and the first applies every rejected
// Service. The deletion of unused objects may need a second sync, if a commit that reported a failure had deleted them.
func (m *machine) repair() syncer.Report {
	m.t.Helper()
	for tries := 0; ; tries++ {
		report := m.cleanSync()
		if report.RejectedTotal > 0 || report.CleanupErr != nil && tries > 0 || tries > 1000 {
			m.t.Fatalf("without faults, sync %d reports %+v", tries+1, report)
		}
		if report.CleanupErr == nil && !m.proxy.Waits() {
			return report
		}
		m.proxy.AllowLarge()
	}
}

// cleanSync syncs without faults. In a history without faults, a sync is a full one only if the rules change, and
// writes only the differences.
func (m *machine) cleanSync() syncer.Report {
	m.t.Helper()
	before, owners := tableContents(m.kernel), maps.Clone(m.model.byFrontend)
	report, err := m.proxy.Sync(m.t.Context())
	if err != nil {
		m.t.Fatalf("a sync without faults fails: %v", err)
	}
	var ranges []netip.Prefix
	if node := m.everything.Nodes[self]; m.config.LocalTraffic.PodCIDRs && node != nil {
		ranges = node.PodCIDRs
	}
	isPredictable := m.switches == (switches{}) && len(before) > 0
	if report.Full != !slices.Equal(ranges, m.ranges) && isPredictable {
		m.t.Errorf("full: %v, but the pod CIDRs were %v and are %v", report.Full, m.ranges, ranges)
	}
	for frontend, owner := range m.model.byFrontend {
		if previousOwner, existed := owners[frontend]; existed && previousOwner != owner { // its slots are deleted and added, even if unchanged
			isPredictable = false
		}
	}
	if m.ranges = ranges; isPredictable && !report.Full {
		m.checkWritten(before, report)
	}
	return report
}

func (m *machine) checkWritten(before map[tableItem]ruleset.Element, report syncer.Report) {
	m.t.Helper()
	after := tableContents(m.kernel)
	added, deleted := 0, 0
	for item, element := range after {
		if old, existed := before[item]; item.key != (ruleset.Tuple{}) && (!existed || old != element) {
			added++
		}
	}
	for item, element := range before {
		if current, stays := after[item]; item.key != (ruleset.Tuple{}) && (!stays || current != element) {
			deleted++
		}
	}
	gotAdded, gotDeleted := report.Added[model.IPv4]+report.Added[model.IPv6], report.Deleted[model.IPv4]+report.Deleted[model.IPv6]
	if gotAdded != added || gotDeleted != deleted {
		m.t.Errorf("%d elements were added and %d deleted, want %d and %d", gotAdded, gotDeleted, added, deleted)
	}
}

// sync syncs once, and checks that an error has an injected cause.
func (m *machine) sync() {
	m.t.Helper()
	m.faults.take()
	if m.proxy.ForbidLarge(); m.random.IntN(2) == 0 {
		m.proxy.AllowLarge()
	}
	report, err := m.proxy.Sync(m.t.Context())
	if err == nil && !m.externallyModified {
		m.model.checkOwners(m.kernel, m.proxy.Waits())
	}
	injected := m.faults.take()
	if err = errors.Join(err, report.CleanupErr); err == nil {
		return
	}
	m.failedSyncs++
	m.uncertain = m.uncertain || slices.ContainsFunc(injected, isApplied)
	caused := slices.ContainsFunc(injected, func(cause error) bool { return errors.Is(err, cause) })
	if !caused && !m.uncertain && !m.externallyModified { // which cause other errors
		m.t.Errorf("sync failed with %v, which none of %v caused", err, injected)
	}
}

func isApplied(err error) bool {
	return slices.ContainsFunc(commitFaults, func(fault fault) bool { return fault.applied && errors.Is(err, fault.err) })
}

// committed checks the invariants after each transaction, even in the middle of a sync that fails later: packets can
// traverse the tables, every endpoint was allowed by some version of the cluster, and clients keep their endpoints.
func (m *machine) committed(batch ruleset.Batch) {
	m.t.Helper()
	numbers := map[affinityClients]map[netip.AddrPort][]uint32{}
	for _, family := range m.config.Families {
		for _, b := range balancingIn(m.t, m.kernel, family) {
			for _, frontend := range b.frontends {
				numbers[frontend.clients] = frontend.numbers
			}
			if m.externallyModified || !m.switches.faults {
				continue
			}
			checkSlotsHaveEndpoints(m.t, b)
			for pair := range b.frontendEndpoints() {
				if !m.allowed[pair] {
					m.t.Errorf("%+v is active, which no version of the cluster allowed", pair)
				}
			}
		}
	}
	if !m.externallyModified && !recreatesTable(batch) {
		for clients, before := range m.numbers {
			for endpoint, number := range numbers[clients] {
				previous := before[endpoint]
				if previous != nil && !slices.ContainsFunc(previous, func(n uint32) bool { return slices.Contains(number, n) }) {
					m.t.Errorf("%+v: the clients of %s had the numbers %x and now have %x", clients, endpoint, previous, number)
				}
			}
		}
	}
	m.numbers = numbers
}

// checkSmallServices checks that the tables have all small Services, while large ones may wait.
func (m *machine) checkSmallServices(start freshStart) {
	m.t.Helper()
	m.proxy.ForbidLarge()
	m.cleanSync()
	m.model.checkOwners(m.kernel, true)
	smallServices := func(k *handlerModel) map[model.ObjectName]map[model.Frontend]string {
		all := maps.Clone(k.byService)
		maps.DeleteFunc(all, func(name model.ObjectName, _ map[model.Frontend]string) bool { return name.Namespace == "tenant" })
		return all
	}
	if diff := cmp.Diff(smallServices(start.model), smallServices(m.model), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		m.t.Errorf("while large Services may wait (-fresh start +after the history):\n%s", diff)
	}
}

// checkConverged checks that tables, handlers and report are those of a fresh start.
func (m *machine) checkConverged(report syncer.Report) {
	m.t.Helper()
	start := m.fresh()
	checkSameTables(m.t, m.config, start.kernel, m.kernel)
	m.model.checkOwners(m.kernel, false)
	opts := cmp.Options{
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(selection.SyncState{}, "Full"),
	}
	if diff := cmp.Diff(start.model.comparableState(), m.model.comparableState(), opts); diff != "" {
		m.t.Fatalf("handler state (-fresh start +after the history):\n%s", diff)
	}
	if report.Applied != start.report.Applied || report.Contested != start.report.Contested || report.Waiting > 0 {
		m.t.Errorf("%d Services, %d contested frontends, %d waiting; a fresh start reports %+v",
			report.Applied, report.Contested, report.Waiting, start.report)
	}
	m.lostFrontends += m.model.lostFrontends
	m.model.lostFrontends = 0
}

// modifyExternally deletes something from the tables, with or without a notification of the proxy.
func (m *machine) modifyExternally() {
	m.t.Helper()
	batch := ruleset.Batch{Ops: m.removal()}
	if err := m.inner.Commit(context.Background(), batch); err != nil || len(batch.Ops) == 0 {
		return // it is in use, or there is nothing to delete
	}
	if m.random.IntN(2) == 0 {
		m.proxy.ForceFullSync()
	}
	m.externallyModified = true
}

// removal returns operations that delete an element, the content of a set or a chain, or a set, a chain, or a table.
func (m *machine) removal() []ruleset.Op {
	family := m.config.Families[m.random.IntN(len(m.config.Families))]
	objects := m.kernel.Tables.Objects(family)
	if !objects.Table {
		return nil
	}
	op := func(verb ruleset.Verb, object ruleset.Object) ruleset.Op {
		return ruleset.Op{Verb: verb, Family: family, Object: object}
	}
	set := ruleset.StaticSets[m.random.IntN(len(ruleset.StaticSets))]
	chain := ruleset.ChainObject{Chain: ruleset.Chain{Name: objects.Chains[m.random.IntN(len(objects.Chains))]}}
	switch m.random.IntN(8) {
	case 0:
		return []ruleset.Op{op(ruleset.Delete, ruleset.TableObject{})}
	case 1:
		return []ruleset.Op{op(ruleset.Flush, ruleset.SetObject{Set: set})}
	case 2:
		return []ruleset.Op{op(ruleset.Delete, ruleset.SetObject{Set: set})}
	case 3:
		return []ruleset.Op{op(ruleset.Flush, chain)}
	case 4:
		return []ruleset.Op{op(ruleset.Flush, chain), op(ruleset.Delete, chain)}
	}
	elements, err := m.kernel.Elements(family, set)
	if err != nil || len(elements) == 0 {
		return nil
	}
	one := []ruleset.Element{elements[m.random.IntN(len(elements))]}
	return []ruleset.Op{op(ruleset.Delete, ruleset.ElementsObject{Set: set, Elements: slices.Values(one)})}
}

// TestAnyHistoryEndsLikeAFreshStart: whatever changes, whatever netlink failures a proxy has, and whatever another
// process deletes from its tables, the first sync after that leads to the tables and the handler state of a fresh
// start.
func TestAnyHistoryEndsLikeAFreshStart(t *testing.T) {
	counts, lost := map[string]int{}, 0
	for _, test := range []struct {
		title string
		on    switches
		seeds uint64
		steps int
	}{
		{"no faults", switches{}, 12, 20},
		{"netlink fails", switches{faults: true}, 12, 10},
		{"netlink fails and another process deletes objects", switches{faults: true, externalDeletion: true}, 12, 10},
		{"large Services wait", switches{large: true}, 4, 6},
	} {
		for seed := range test.seeds {
			t.Run(fmt.Sprintf("%s, seed %d", test.title, seed), func(t *testing.T) {
				kernel := &memoryKernel{}
				m := newMachine(t, seed, test.on, kernel, kernel)
				for range test.steps {
					m.step()
				}
				if m.switches.faults && m.failedSyncs == 0 {
					t.Error("no sync failed, so nothing was tested")
				}
				for fault, count := range m.faults.counts {
					counts[fault] += count
				}
				lost += m.lostFrontends
			})
		}
	}
	for _, fault := range slices.Concat(commitFaults, readFaults) {
		if counts[fault.name] == 0 {
			t.Errorf("%s: never happened, so it was not tested", fault.name)
		}
	}
	if lost == 0 || counts[rejectedService] == 0 {
		t.Errorf("existing Services lost %d frontends, and %d elements were rejected; want some of each", lost, counts[rejectedService])
	}
}

// TestTheRealKernelAgreesWithTheOneInMemory at all times, whatever netlink does, with each configuration.
func TestTheRealKernelAgreesWithTheOneInMemory(t *testing.T) {
	for _, externalDeletion := range []bool{false, true} {
		for seed := range uint64(len(configurations)) {
			t.Run(fmt.Sprintf("external deletion %v, seed %d", externalDeletion, seed), func(t *testing.T) {
				kernel := newRealKernel(t)
				m := newMachine(t, seed, switches{faults: true, externalDeletion: externalDeletion}, &kernel.model, kernel)
				for range 4 {
					m.step()
					kernel.expectSameListing(t)
				}
			})
		}
	}
}
