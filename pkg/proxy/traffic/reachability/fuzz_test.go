package reachability_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
)

// fuzzModel runs a detector on fuzzed input, and records what it must know to check each ejection.
type fuzzModel struct {
	t             *testing.T
	detector      *reachability.Detector
	input         []byte
	now           time.Time
	targets       map[string]netip.Addr
	servers       []netip.AddrPort
	pendingProbes []orderedProbe // without a result yet
	order         int
	ejections     int
	// unreplied are the probes of an address since its last reply. lastReply is, by address, the latest probe that had a
	// reply.
	unreplied map[netip.Addr][]orderedProbe
	lastReply map[netip.Addr]orderedProbe
	listed    []string
	ejected   map[string]bool
}

// orderedProbe is a probe with its position in the order of probes.
type orderedProbe struct {
	reachability.Probe
	position int
}

func (m *fuzzModel) nextByte() byte {
	if len(m.input) == 0 {
		return 0
	}
	b := m.input[0]
	m.input = m.input[1:]
	return b
}

var fuzzedServer = netip.MustParseAddrPort("198.51.100.1:6443")

func play(t *testing.T, input []byte) *fuzzModel {
	t.Helper()
	m := &fuzzModel{
		t: t, detector: reachability.NewDetector("n0", 10256, reachability.NewBudget()), input: input, now: epoch,
		targets: map[string]netip.Addr{}, unreplied: map[netip.Addr][]orderedProbe{}, lastReply: map[netip.Addr]orderedProbe{},
		ejected: map[string]bool{},
	}
	for i := range 5 {
		m.targets[fmt.Sprintf("n%d", i)] = addrOf(i)
	}
	m.detector.SetNodes(m.now, m.targets, nil)
	m.order = 1
	for range 2 { // all have replied once
		m.now = m.now.Add(time.Minute)
		m.step()
		for len(m.pendingProbes) > 0 {
			m.reply(0, reachability.Accepted)
		}
	}
	for len(m.input) > 0 {
		m.do(m.nextByte())
		m.step()
	}
	return m
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }

func (m *fuzzModel) do(operation byte) {
	m.order++
	switch operation % 15 {
	case 0, 1, 2:
		m.now = m.now.Add(time.Duration(m.nextByte()) * 4 * time.Millisecond)
	case 3, 4, 5:
		m.now = m.now.Add(500 * time.Millisecond)
		m.scan(255)
	case 6:
		m.scan(m.nextByte())
	case 7:
		if len(m.pendingProbes) > 0 {
			m.reply(int(m.nextByte())%len(m.pendingProbes), reachability.NoReply)
		}
	case 8:
		if len(m.pendingProbes) > 0 {
			m.reply(int(m.nextByte())%len(m.pendingProbes), reachability.ProbeResult(1+m.nextByte()%2))
		}
	case 9, 10, 11, 12:
		for i := range slices.Backward(m.pendingProbes) {
			if m.pendingProbes[i].Addr.Addr() == addrOf(1) || m.nextByte()%8 == 0 {
				m.reply(i, reachability.NoReply)
			} else {
				m.reply(i, reachability.Accepted)
			}
		}
	case 13:
		var flows []reachability.Flow
		for _, name := range m.listed {
			for range m.nextByte() / 100 {
				flows = append(flows, reachability.Flow{ID: uint32(m.nextByte() / 50), Client: addrOf(int(m.nextByte())), Node: name})
			}
		}
		m.detector.ReportReplied(m.now, m.listed, flows, flows, m.nextByte()%8 != 0)
		m.listed = nil
	case 14:
		if m.nextByte()%4 == 0 {
			m.setTargets(m.nextByte())
		}
	}
}

// scan reports a connection to each node whose bit is set in a mask.
func (m *fuzzModel) scan(mask byte) {
	var nodes []string
	for i := range 5 {
		if mask&(1<<i) != 0 {
			nodes = append(nodes, fmt.Sprintf("n%d", i))
		}
	}
	m.detector.ReportUnreplied(nodes)
}

// setTargets adds or removes a node, or changes its address.
func (m *fuzzModel) setTargets(input byte) {
	i := int(input % 5)
	name := fmt.Sprintf("n%d", i)
	switch _, exists := m.targets[name]; {
	case exists && input&32 != 0:
		delete(m.targets, name)
	default:
		m.targets[name] = addrOf(i + 5*int(input>>6))
	}
	m.servers = nil
	if input&16 != 0 {
		m.servers = []netip.AddrPort{fuzzedServer}
	}
	m.detector.SetNodes(m.now, m.targets, m.servers)
}

func (m *fuzzModel) reply(i int, result reachability.ProbeResult) {
	probe := m.pendingProbes[i]
	m.pendingProbes = append(m.pendingProbes[:i:i], m.pendingProbes[i+1:]...)
	switch result {
	case reachability.NoReply:
		m.unreplied[probe.Addr.Addr()] = append(m.unreplied[probe.Addr.Addr()], probe)
	default:
		m.unreplied[probe.Addr.Addr()] = nil
		if m.lastReply[probe.Addr.Addr()].position < probe.position {
			m.lastReply[probe.Addr.Addr()] = probe
		}
	}
	m.detector.ReportProbe(m.now, probe.ID, result, time.Millisecond)
}

func (m *fuzzModel) step() {
	actions := m.detector.Step(m.now)
	for _, restoration := range actions.Restored {
		delete(m.ejected, restoration.Node)
	}
	for _, name := range actions.Ejected {
		m.ejections++
		m.check(name)
		m.ejected[name] = true
	}
	for _, probe := range actions.Probes {
		m.pendingProbes = append(m.pendingProbes, orderedProbe{probe, m.order})
	}
	m.listed = append(m.listed, actions.ListReplied...)
	if len(actions.Probes) > 300 {
		m.t.Errorf("%d probes at once", len(actions.Probes))
	}
	unreachable := map[string]bool{}
	for _, node := range m.detector.Status().Ejected {
		unreachable[node.Node] = true
	}
	if !maps.Equal(m.ejected, unreachable) {
		m.t.Errorf("ejected nodes: %v by the actions, %v in the status", m.ejected, unreachable)
	}
	if !actions.NextStep.After(m.now) {
		m.t.Errorf("the next step is due at %v, now it is %v", actions.NextStep, m.now)
	}
}

// check checks that an ejection is justified.
func (m *fuzzModel) check(name string) {
	target, exists := m.targets[name]
	if !exists || name == "n0" {
		m.t.Fatalf("%s is ejected: exists %v", name, exists)
	}
	if _, hasReplied := m.lastReply[target]; !hasReplied {
		m.t.Errorf("%s is ejected, but never replied", name)
	}
	unreplied := m.unreplied[target]
	if len(unreplied) < 4 {
		m.t.Fatalf("%s is ejected after %d unreplied probes", name, len(unreplied))
	}
	first := unreplied[len(unreplied)-4].position
	for addr, probe := range m.lastReply {
		if addr != target && probe.position >= first {
			return
		}
	}
	m.t.Errorf("%s is ejected, but no other address replied to a probe sent since its last four probes", name)
}

func TestNoEjectionWithoutReasons(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 9))
	ejections := 0
	for range 4000 {
		input := make([]byte, 400)
		for i := range input {
			input[i] = byte(random.Uint32())
		}
		ejections += play(t, input).ejections
		if t.Failed() {
			t.Fatalf("input %v", input)
		}
	}
	if ejections < 100 {
		t.Errorf("%d ejections, want at least 100", ejections)
	}
	t.Log(ejections, "ejections")
}

func FuzzDetector(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 4, 5, 3, 1, 2, 3, 4, 5, 0, 200, 0, 200, 12, 0, 200, 12, 13, 12, 0, 200, 12, 13})
	f.Fuzz(func(t *testing.T, input []byte) { play(t, input) })
}
