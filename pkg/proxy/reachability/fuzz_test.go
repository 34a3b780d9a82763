package reachability_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
)

// ledger is what was seen of a judge from outside.
type ledger struct {
	t        *testing.T
	judge    *reachability.Judge
	input    []byte
	now      time.Time
	places   map[string]reachability.Place
	servers  []netip.AddrPort
	dials    []ordered // that are not answered
	order    int
	verdicts int
	// unanswered are the dials to an address since its last answer, and heard is when the last dial that others answered
	// was made.
	unanswered map[netip.AddrPort][]ordered
	heard      map[netip.AddrPort]ordered
	asked      []string
	out        map[string]bool
}

// ordered is a dial and when it was made, in an order that no clock changes.
type ordered struct {
	reachability.Dial
	at int
}

func (l *ledger) next() byte {
	if len(l.input) == 0 {
		return 0
	}
	next := l.input[0]
	l.input = l.input[1:]
	return next
}

var fuzzedServer = netip.MustParseAddrPort("198.51.100.1:6443")

func playJudge(t *testing.T, input []byte) *ledger {
	t.Helper()
	l := &ledger{
		t: t, judge: reachability.NewJudge("n0"), input: input, now: epoch, places: map[string]reachability.Place{},
		unanswered: map[netip.AddrPort][]ordered{}, heard: map[netip.AddrPort]ordered{}, out: map[string]bool{},
	}
	for i := range 5 {
		l.places[fmt.Sprintf("n%d", i)] = reachability.Place{Addr: addrOf(i), Zone: fmt.Sprintf("z%d", i%2)}
	}
	l.judge.Place(l.now, l.places, nil)
	l.order = 1
	for range 2 { // all have answered once
		l.now = l.now.Add(time.Minute)
		l.step()
		for len(l.dials) > 0 {
			l.answer(0, reachability.Accepted)
		}
	}
	for len(l.input) > 0 {
		l.play(l.next())
		l.step()
	}
	return l
}

func addrOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 10256)
}

func (l *ledger) play(what byte) {
	l.order++
	switch what % 16 {
	case 0, 1, 2:
		l.now = l.now.Add(time.Duration(l.next()) * 4 * time.Millisecond)
	case 3, 4, 5:
		l.now = l.now.Add(500 * time.Millisecond)
		l.look(255)
	case 6:
		l.look(l.next())
	case 7:
		if len(l.dials) > 0 {
			l.answer(int(l.next())%len(l.dials), reachability.NoAnswer)
		}
	case 8:
		if len(l.dials) > 0 {
			l.answer(int(l.next())%len(l.dials), reachability.Kind(1+l.next()%3))
		}
	case 9, 10, 11, 12:
		for i := range slices.Backward(l.dials) {
			if l.dials[i].Addr == addrOf(1) || l.next()%8 == 0 {
				l.answer(i, reachability.NoAnswer)
			} else {
				l.answer(i, reachability.Accepted)
			}
		}
	case 13:
		ids := map[string][]uint32{}
		for _, name := range l.asked {
			ids[name] = []uint32{uint32(l.next() / 250)}
		}
		l.judge.Flows(l.asked, ids, l.next()%8 != 0)
		l.asked = nil
	case 14:
		if l.next()%4 == 0 {
			l.place(l.next())
		}
	case 15:
		if l.next()%8 == 0 {
			l.now = l.now.Add(time.Duration(int(l.next())-128) * time.Minute)
		}
	}
}

// look reports connections to the nodes that a mask names.
func (l *ledger) look(mask byte) {
	var flows []reachability.Flow
	for i := range 5 {
		if mask&(1<<i) != 0 {
			flows = append(flows, reachability.Flow{
				ID: uint32(i), Client: netip.AddrFrom4([4]byte{10, 0, 0, byte(l.now.Minute())}), Node: fmt.Sprintf("n%d", i),
				Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 80),
			})
		}
	}
	l.judge.Looked(l.now, flows)
}

// place has a node come, go, or move to another address.
func (l *ledger) place(what byte) {
	i := int(what % 5)
	name := fmt.Sprintf("n%d", i)
	switch _, there := l.places[name]; {
	case there && what&32 != 0:
		delete(l.places, name)
	default:
		l.places[name] = reachability.Place{Addr: addrOf(i + 5*int(what>>6))}
	}
	l.servers = nil
	if what&16 != 0 {
		l.servers = []netip.AddrPort{fuzzedServer}
	}
	l.judge.Place(l.now, l.places, l.servers)
}

func (l *ledger) answer(i int, kind reachability.Kind) {
	dial := l.dials[i]
	l.dials = append(l.dials[:i:i], l.dials[i+1:]...)
	switch kind {
	case reachability.NotDialled:
	case reachability.NoAnswer:
		l.unanswered[dial.Addr] = append(l.unanswered[dial.Addr], dial)
	default:
		l.unanswered[dial.Addr] = nil
		if l.heard[dial.Addr].at < dial.at {
			l.heard[dial.Addr] = dial
		}
	}
	l.judge.Answered(l.now, dial.ID, kind, time.Millisecond)
}

func (l *ledger) step() {
	orders := l.judge.Step(l.now)
	for _, back := range orders.Back {
		delete(l.out, back.Node)
	}
	for _, name := range orders.Out {
		l.verdicts++
		l.check(name)
		l.out[name] = true
	}
	for _, dial := range orders.Dials {
		l.dials = append(l.dials, ordered{dial, l.order})
	}
	l.asked = append(l.asked, orders.Ask...)
	if len(orders.Dials) > 300 {
		l.t.Errorf("%d dials at once", len(orders.Dials))
	}
	unreachable := map[string]bool{}
	for _, node := range l.judge.Status().Unreachable {
		unreachable[node.Node] = true
	}
	if !maps.Equal(l.out, unreachable) {
		l.t.Errorf("out are %v, and the status says %v", l.out, unreachable)
	}
	if !orders.Next.After(l.now) {
		l.t.Errorf("the next step is due at %v, now it is %v", orders.Next, l.now)
	}
}

// check checks that there are the reasons for a verdict.
func (l *ledger) check(name string) {
	place, there := l.places[name]
	if !there || name == "n0" {
		l.t.Fatalf("%s is judged: there %v", name, there)
	}
	if _, answered := l.heard[place.Addr]; !answered {
		l.t.Errorf("%s is judged and never answered", name)
	}
	unanswered := l.unanswered[place.Addr]
	if len(unanswered) < 4 {
		l.t.Fatalf("%s is judged after %d unanswered dials", name, len(unanswered))
	}
	first := unanswered[len(unanswered)-4].at
	for addr, dial := range l.heard {
		if addr != place.Addr && dial.at >= first {
			return
		}
	}
	l.t.Errorf("%s is judged and no other answered a dial that was made as late", name)
}

func TestNoVerdictWithoutReasons(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 9))
	verdicts := 0
	for range 3000 {
		input := make([]byte, 400)
		for i := range input {
			input[i] = byte(random.Uint32())
		}
		verdicts += playJudge(t, input).verdicts
		if t.Failed() {
			t.Fatalf("input %v", input)
		}
	}
	if verdicts < 100 {
		t.Errorf("%d verdicts: the test shows nothing", verdicts)
	}
	t.Log(verdicts, "verdicts")
}

func FuzzJudge(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 4, 5, 3, 1, 2, 3, 4, 5, 0, 200, 0, 200, 12, 0, 200, 12, 13, 12, 0, 200, 12, 13})
	f.Fuzz(func(t *testing.T, input []byte) { playJudge(t, input) })
}
