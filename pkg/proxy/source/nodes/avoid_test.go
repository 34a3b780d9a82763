package nodes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// site is a cluster with a directory of its nodes.
type site struct {
	*Directory
	now    time.Time
	slices map[model.ObjectName]*model.EndpointSlice
	avoid  map[string]*model.Avoid // as it was handed over
}

func newSite() *site {
	s := &site{
		now: time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC), slices: map[model.ObjectName]*model.EndpointSlice{},
		avoid: map[string]*model.Avoid{},
	}
	s.Directory = New("self", func(yield func(*model.EndpointSlice) bool) {
		for _, slice := range s.slices {
			if !yield(slice) {
				return
			}
		}
	})
	return s
}

// label gives a Node the label that evacuates it, as the watch by that label reports it; empty: the watch no longer
// sees the Node.
func (s *site) label(node, value string) {
	var now any
	if value != "" {
		now = &model.Node{Name: node, Labels: map[string]string{policy.EvacuateLabel: value, string(policy.Hostname): "host-of-" + node}}
	}
	s.Put(convert.Avoided[model.Evacuated], model.ObjectName{Name: node}, now, s.now)
}

// slice puts a version of a slice; the phases of its endpoints are by node and address.
func (s *site) slice(name string, phases map[string]model.Phase) {
	full := model.ObjectName{Namespace: "default", Name: name}
	before := s.slices[full]
	var now *model.EndpointSlice
	if delete(s.slices, full); phases != nil {
		now = &model.EndpointSlice{Name: full, Service: model.ObjectName{Namespace: "default", Name: "web"}}
		for place, phase := range phases {
			now.Endpoints = append(now.Endpoints, endpointAt(place, phase))
		}
		s.slices[full] = now
	}
	s.NoteSlice(before, now)
}

// endpointAt is an endpoint at a place, as in "node-1/10.0.0.1".
func endpointAt(place string, phase model.Phase) model.SliceEndpoint {
	node, addr := place[:6], place[7:]
	entry := model.SliceEndpoint{Addr: netip.MustParseAddr(addr)}
	entry.Node, entry.Ready = node, phase == model.PhaseReady
	entry.Serving, entry.Terminating = phase != model.PhaseNever, phase != model.PhaseReady
	return entry
}

// pass lets time pass.
func (s *site) pass(duration time.Duration) {
	s.now = s.now.Add(duration)
	s.Expire(s.now)
}

// avoidedNodes returns the nodes that are avoided, as it was handed over.
func (s *site) avoidedNodes() string {
	var change model.Change
	s.Take(&change)
	for against, avoid := range change.Avoid {
		if delete(s.avoid, against.Node); avoid != nil {
			s.avoid[against.Node] = avoid
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(s.avoid)))
}

const (
	ready       = model.PhaseReady
	terminating = model.PhaseTerminating
	never       = model.PhaseNever
)

// TestANodeThatGoesWhileItIsAvoidedStaysSo until a slice says something new about an endpoint there, or no slice lists
// one.
func TestANodeThatGoesWhileItIsAvoidedStaysSo(t *testing.T) {
	type phases = map[string]model.Phase
	put := func(name string, phases phases) func(*site) { return func(s *site) { s.slice(name, phases) } }
	goes := func(s *site) {
		s.label("node-1", "")
		s.Questions()
		s.Answer(map[string]bool{"node-1": false}, s.now)
	}
	for name, test := range map[string]struct {
		then func(*site)
		want string
	}{
		"nothing happens": {func(s *site) { s.pass(time.Hour) }, "[node-1]"},
		"its label is taken away": {func(s *site) {
			s.label("node-1", "true")
			s.label("node-1", "")
			s.Answer(map[string]bool{"node-1": true}, s.now)
		}, "[]"},
		"it comes back with the label off": {func(s *site) { s.label("node-1", "false") }, "[]"},
		"it comes back with the label":     {func(s *site) { s.label("node-1", "true"); s.slice("a", nil); s.slice("b", nil) }, "[node-1]"},
		"the slice is written as it was":   {put("a", phases{"node-1/10.0.0.1": ready, "node-2/10.0.0.2": ready}), "[node-1]"},
		"another node's endpoint comes":    {put("a", phases{"node-1/10.0.0.1": ready, "node-3/10.0.0.9": ready}), "[node-1]"},
		"its endpoint terminates":          {put("a", phases{"node-1/10.0.0.1": terminating}), "[node-1]"},
		"it terminates, and is ready": {func(s *site) {
			s.slice("a", phases{"node-1/10.0.0.1": terminating})
			s.slice("a", phases{"node-1/10.0.0.1": ready})
		}, "[]"},
		"its endpoint is unready": {put("a", phases{"node-1/10.0.0.1": never}), "[node-1]"},
		"it is unready, and ready": {func(s *site) {
			s.slice("a", phases{"node-1/10.0.0.1": never})
			s.slice("a", phases{"node-1/10.0.0.1": ready})
		}, "[]"},
		"a new endpoint comes there":   {put("c", phases{"node-1/10.0.0.7": ready}), "[]"},
		"a new one that is unready":    {put("c", phases{"node-1/10.0.0.7": never}), "[node-1]"},
		"one of its endpoints goes":    {put("a", nil), "[node-1]"},
		"all of its endpoints go":      {func(s *site) { s.slice("a", nil); s.slice("b", phases{}) }, "[]"},
		"another slice takes one over": {func(s *site) { s.slice("c", phases{"node-1/10.0.0.1": ready}); s.slice("a", nil) }, "[node-1]"},
	} {
		s := newSite()
		s.slice("a", phases{"node-1/10.0.0.1": ready, "node-2/10.0.0.2": ready})
		s.slice("b", phases{"node-1/10.0.0.3": terminating, "node-1/10.0.0.4": never})
		s.label("node-1", "20261122T1800Z")
		if got := s.avoidedNodes(); got != "[node-1]" {
			t.Fatalf("%s: avoided are %s", name, got)
		}
		goes(s)
		test.then(s)
		if got := s.avoidedNodes(); got != test.want {
			t.Errorf("%s: avoided are %s, want %s", name, got, test.want)
		}
		if got := len(s.gone); test.want == "[]" && got != 0 {
			t.Errorf("%s: %d nodes are remembered", name, got)
		}
	}
}

// TestALabelThatIsNotSeenAnyMoreIsAskedFor, once; without an answer the node counts as existing.
func TestALabelThatIsNotSeenAnyMoreIsAskedFor(t *testing.T) {
	s := newSite()
	s.slice("a", map[string]model.Phase{"node-1/10.0.0.1": ready, "node-2/10.0.0.2": ready, "node-3/10.0.0.3": ready})
	for _, node := range []string{"node-1", "node-2", "node-3", "node-4"} {
		s.label(node, "true")
		s.label(node, "")
	}
	if diff := cmp.Diff(map[string]string{
		"node-1": "host-of-node-1", "node-2": "host-of-node-2", "node-3": "host-of-node-3", "node-4": "host-of-node-4",
	}, s.Questions()); diff != "" || s.HasQuestions() || s.Questions() != nil {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
	if got := s.avoidedNodes(); got != "[node-1 node-2 node-3 node-4]" {
		t.Errorf("until there is an answer, avoided are %s", got)
	}
	s.label("node-3", "true")
	s.Answer(map[string]bool{"node-1": true, "node-2": false, "node-3": false}, s.now)
	if got := s.avoidedNodes(); got != "[node-2 node-3 node-4]" {
		t.Errorf("after the answer, avoided are %s", got)
	}
	if s.pass(answerPatience - 1); s.avoidedNodes() != "[node-2 node-3 node-4]" {
		t.Errorf("a node of which there is no answer is not waited for")
	}
	if s.pass(1); s.avoidedNodes() != "[node-2 node-3]" {
		t.Errorf("avoided are %s, though nobody answers", s.avoidedNodes())
	}
	s.label("node-3", "")
	s.Answer(map[string]bool{"node-3": false}, s.now)
	s.slice("a", nil)
	if got := s.avoidedNodes(); got != "[]" || len(s.gone) != 0 || len(s.asked) != 0 {
		t.Errorf("no slice lists anything: avoided are %s, remembered %d", got, len(s.gone))
	}
}

// TestANodeThatCameBackIsNoticed although nothing reports it: we ask once a minute.
func TestANodeThatCameBackIsNoticed(t *testing.T) {
	s := newSite()
	s.slice("a", map[string]model.Phase{"node-1/10.0.0.1": ready})
	s.label("node-1", "true")
	s.label("node-1", "")
	s.Questions()
	s.Answer(map[string]bool{"node-1": false}, s.now)
	for range 3 {
		s.pass(askAgainAfter - 1)
		if s.HasQuestions() {
			t.Error("it is asked sooner")
		}
		s.pass(1)
		if diff := cmp.Diff(map[string]string{"node-1": "host-of-node-1"}, s.Questions()); diff != "" || s.avoidedNodes() != "[node-1]" {
			t.Errorf("a minute later avoided are %s, and the question is (-want +got):\n%s", s.avoidedNodes(), diff)
		}
		s.Answer(map[string]bool{"node-1": false}, s.now)
	}
	s.pass(askAgainAfter)
	s.Questions()
	s.slice("a", map[string]model.Phase{"node-1/10.0.0.1": terminating})
	s.Answer(map[string]bool{"node-1": true}, s.now)
	if got := s.avoidedNodes(); got != "[]" || s.avoided.later.Len() != 0 || len(s.gone)+len(s.asked) != 0 {
		t.Errorf("it is back: avoided are %s, and %d things are to happen", got, s.avoided.later.Len())
	}
}

// TestEvacuationsEndWhenTheyShould, and only those that the Node still says.
func TestEvacuationsEndWhenTheyShould(t *testing.T) {
	s := newSite()
	s.slice("a", map[string]model.Phase{"node-4/10.0.0.1": ready})
	for node, value := range map[string]string{
		"node-1": "20261122T1710Z", "node-2": "20261122T1720Z", "node-3": "true", "node-4": "20261122T1710Z", "node-5": "20261122T1659Z",
	} {
		s.label(node, value)
	}
	check := func(when string, passed time.Duration, want string) {
		t.Helper()
		if s.pass(passed); s.avoidedNodes() != want {
			t.Errorf("%s: avoided are %s, want %s", when, s.avoidedNodes(), want)
		}
	}
	check("one is over already", 0, "[node-1 node-2 node-3 node-4]")
	s.label("node-2", "20261122T1715Z")
	s.label("node-4", "")
	s.Answer(map[string]bool{"node-4": false}, s.now)
	check("just before the first end", 10*time.Minute-1, "[node-1 node-2 node-3 node-4]")
	if at, some := s.Next(); !some || at.Sub(s.now) != 1 {
		t.Errorf("the next is at %v: %v", at, some)
	}
	check("the first end, but of one that went", 1, "[node-2 node-3 node-4]")
	check("one that ends sooner than it was said", 5*time.Minute, "[node-3 node-4]")
	s.label("node-1", "20261122T1730Z")
	check("one begins again", 0, "[node-1 node-3 node-4]")
	s.label("node-1", "true")
	check("it has no end any more", time.Hour, "[node-1 node-3 node-4]")
	if s.later.Len() != 0 {
		t.Errorf("%d things are to happen", s.later.Len())
	}
}

// TestWhatIsAvoidedIsWhatTheRuleSays: after any history of labels, Nodes and slices, checked by a computation that
// compares all that slices list before and after.
func TestWhatIsAvoidedIsWhatTheRuleSays(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newSite()
		isLabelled, isGone := map[string]bool{}, map[string]bool{}
		node := func() string { return fmt.Sprint("node-", random.IntN(3)) }
		for step := range 60 {
			switch name := node(); random.IntN(6) {
			case 0:
				s.label(name, "true")
				isLabelled[name], isGone[name] = true, false
			case 1:
				if isLabelled[name] {
					isThere := random.IntN(2) == 0
					s.label(name, "")
					s.Answer(map[string]bool{name: isThere}, s.now)
					isLabelled[name] = false
					isGone[name] = !isThere && len(s.best()[name]) > 0
				}
			default:
				before := s.best()
				phases := map[string]model.Phase{}
				for range random.IntN(5) {
					phases[fmt.Sprintf("%s/10.0.0.%d", node(), random.IntN(4))] = model.Phase(random.IntN(3))
				}
				s.slice(fmt.Sprint("slice-", random.IntN(3)), phases)
				for name, now := range s.best() {
					for addr, phase := range now {
						if was, isListed := before[name][addr]; !isListed || phase < was {
							isGone[name] = false
						}
					}
				}
				for name := range isGone {
					isGone[name] = isGone[name] && len(s.best()[name]) > 0
				}
			}
			var want []string
			for i := range 3 {
				if name := fmt.Sprint("node-", i); isLabelled[name] || isGone[name] {
					want = append(want, name)
				}
			}
			if got := s.avoidedNodes(); got != fmt.Sprint(want) {
				t.Fatalf("seed %d, step %d: avoided are %s, want %v", seed, step, got, want)
			}
		}
	}
}

// best returns the usable endpoints by node and address, each in its earliest phase.
func (s *site) best() map[string]map[netip.Addr]model.Phase {
	best := map[string]map[netip.Addr]model.Phase{}
	for _, slice := range s.slices {
		for _, entry := range slice.Endpoints {
			phase := entry.Phase()
			if phase == never {
				continue
			}
			if best[entry.Node] == nil {
				best[entry.Node] = map[netip.Addr]model.Phase{}
			}
			if was, isListed := best[entry.Node][entry.Addr]; !isListed || phase < was {
				best[entry.Node][entry.Addr] = phase
			}
		}
	}
	return best
}

// TestWhatIsRememberedIsBounded: by what slices list on such nodes, whatever comes and goes.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	s := newSite()
	for i := range 1000 {
		s.slice("a", map[string]model.Phase{fmt.Sprintf("node-1/10.0.%d.%d", i/250, i%250): ready, "node-2/10.9.0.1": ready})
		s.label("node-1", "true")
		s.label("node-1", "")
		s.Answer(map[string]bool{"node-1": false}, s.now)
		s.label("node-2", "true")
	}
	if len(s.gone) != 1 || len(s.gone["node-1"].left) != 1 || s.avoided.later.Len() > 1 || len(s.asked) != 0 {
		t.Errorf("remembered are %v, with %d matters and %d questions", s.gone, s.avoided.later.Len(), len(s.asked))
	}
}
