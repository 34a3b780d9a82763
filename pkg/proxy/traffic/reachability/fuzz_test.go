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
type model struct {
	t         *testing.T
	detector  *reachability.Detector
	input     []byte
	now       time.Time
	targets   map[string]netip.Addr
	servers   []netip.AddrPort
	dials     []ordered // without a result yet
	order     int
	ejections int
	// unreplied are the probes of an address since its last reply. lastReply is, by address, the latest probe that had a
	// reply.
	unreplied map[netip.Addr][]ordered
	lastReply map[netip.Addr]ordered
	listed    []string
	ejected   map[string]bool
}

// orderedProbe is a probe with its position in the order of probes.
type ordered struct {
	reachability.Probe
	position int
}

func (l *model) next() byte {
	if len(l.input) == 0 {
		return 0
	}
	next := l.input[0]
	l.input = l.input[1:]
	return next
}

var fuzzedServer = netip.MustParseAddrPort("198.51.100.1:6443")

func play(t *testing.T, input []byte) *model {
	t.Helper()
	l := &model{
		t: t, detector: reachability.NewDetector("n0", 10256, reachability.NewBudget()), input: input, now: epoch,
		targets: map[string]netip.Addr{}, unreplied: map[netip.Addr][]ordered{}, lastReply: map[netip.Addr]ordered{}, ejected: map[string]bool{},
	}
	for i := range 5 {
		l.targets[fmt.Sprintf("n%d", i)] = addrOf(i)
	}
	l.detector.SetNodes(l.now, l.targets, nil)
	l.order = 1
	for range 2 { // all have replied once
		l.now = l.now.Add(time.Minute)
		l.step()
		for len(l.dials) > 0 {
			l.reply(0, reachability.Accepted)
		}
	}
	for len(l.input) > 0 {
		l.do(l.next())
		l.step()
	}
	return l
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }

func (l *model) do(operation byte) {
	l.order++
	switch operation % 15 {
	case 0, 1, 2:
		l.now = l.now.Add(time.Duration(l.next()) * 4 * time.Millisecond)
	case 3, 4, 5:
		l.now = l.now.Add(500 * time.Millisecond)
		l.scan(255)
	case 6:
		l.scan(l.next())
	case 7:
		if len(l.dials) > 0 {
			l.reply(int(l.next())%len(l.dials), reachability.NoReply)
		}
	case 8:
		if len(l.dials) > 0 {
			l.reply(int(l.next())%len(l.dials), reachability.ProbeResult(1+l.next()%2))
		}
	case 9, 10, 11, 12:
		for i := range slices.Backward(l.dials) {
			if l.dials[i].Addr.Addr() == addrOf(1) || l.next()%8 == 0 {
				l.reply(i, reachability.NoReply)
			} else {
				l.reply(i, reachability.Accepted)
			}
		}
	case 13:
		var flows []reachability.Flow
		for _, name := range l.listed {
			for range l.next() / 100 {
				flows = append(flows, reachability.Flow{ID: uint32(l.next() / 50), Client: addrOf(int(l.next())), Node: name})
			}
		}
		l.detector.ReportReplied(l.now, l.listed, flows, flows, l.next()%8 != 0)
		l.listed = nil
	case 14:
		if l.next()%4 == 0 {
			l.setTargets(l.next())
		}
	}
}

// scan reports a connection to each node whose bit is set in a mask.
func (l *model) scan(mask byte) {
	var nodes []string
	for i := range 5 {
		if mask&(1<<i) != 0 {
			nodes = append(nodes, fmt.Sprintf("n%d", i))
		}
	}
	l.detector.ReportUnreplied(nodes)
}

// setTargets adds or removes a node, or changes its address.
func (l *model) setTargets(input byte) {
	i := int(input % 5)
	name := fmt.Sprintf("n%d", i)
	switch _, there := l.targets[name]; {
	case there && input&32 != 0:
		delete(l.targets, name)
	default:
		l.targets[name] = addrOf(i + 5*int(input>>6))
	}
	l.servers = nil
	if input&16 != 0 {
		l.servers = []netip.AddrPort{fuzzedServer}
	}
	l.detector.SetNodes(l.now, l.targets, l.servers)
}

func (l *model) reply(i int, result reachability.ProbeResult) {
	dial := l.dials[i]
	l.dials = append(l.dials[:i:i], l.dials[i+1:]...)
	switch result {
	case reachability.NoReply:
		l.unreplied[dial.Addr.Addr()] = append(l.unreplied[dial.Addr.Addr()], dial)
	default:
		l.unreplied[dial.Addr.Addr()] = nil
		if l.lastReply[dial.Addr.Addr()].position < dial.position {
			l.lastReply[dial.Addr.Addr()] = dial
		}
	}
	l.detector.ReportProbe(l.now, dial.ID, result, time.Millisecond)
}

func (l *model) step() {
	actions := l.detector.Step(l.now)
	for _, back := range actions.Restored {
		delete(l.ejected, back.Node)
	}
	for _, name := range actions.Ejected {
		l.ejections++
		l.check(name)
		l.ejected[name] = true
	}
	for _, dial := range actions.Probes {
		l.dials = append(l.dials, ordered{dial, l.order})
	}
	l.listed = append(l.listed, actions.ListReplied...)
	if len(actions.Probes) > 300 {
		l.t.Errorf("%d probes at once", len(actions.Probes))
	}
	unreachable := map[string]bool{}
	for _, node := range l.detector.Status().Ejected {
		unreachable[node.Node] = true
	}
	if !maps.Equal(l.ejected, unreachable) {
		l.t.Errorf("ejected nodes: %v by the actions, %v in the status", l.ejected, unreachable)
	}
	if !actions.NextStep.After(l.now) {
		l.t.Errorf("the next step is due at %v, now it is %v", actions.NextStep, l.now)
	}
}

// check checks that an ejection is justified.
func (l *model) check(name string) {
	target, exists := l.targets[name]
	if !exists || name == "n0" {
		l.t.Fatalf("%s is ejected: exists %v", name, exists)
	}
	if _, hasReplied := l.lastReply[target]; !hasReplied {
		l.t.Errorf("%s is ejected, but never replied", name)
	}
	unreplied := l.unreplied[target]
	if len(unreplied) < 4 {
		l.t.Fatalf("%s is ejected after %d unreplied probes", name, len(unreplied))
	}
	first := unreplied[len(unreplied)-4].position
	for addr, dial := range l.lastReply {
		if addr != target && dial.position >= first {
			return
		}
	}
	l.t.Errorf("%s is ejected, but no other address replied to a probe sent since its last four probes", name)
}

func TestNoEjectionWithoutReasons(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 9))
	ejections := 0
	for range 3000 {
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
