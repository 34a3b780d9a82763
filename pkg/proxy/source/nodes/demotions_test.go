package nodes

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// testStore is a cluster with a Store of its nodes.
type testStore struct {
	*Store
	now     time.Time
	demoted map[string]*model.Demotion // as delivered
}

func newTestStore() *testStore {
	return &testStore{
		Store: NewStore("self"), now: time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC), demoted: map[string]*model.Demotion{},
	}
}

// label sets the evacuation label of a Node, as the watch by that label reports it. If value is empty, the watch
// reports a deletion.
func (s *testStore) label(node, value string) {
	var object any
	if value != "" {
		object = &model.Node{Name: node, Labels: map[string]string{policy.EvacuateLabel: value, string(policy.Hostname): "host-of-" + node}}
	}
	s.Update(convert.NodesByDemotionReason[model.Evacuated], model.ObjectName{Name: node}, object, s.now)
}

// advance advances the clock.
func (s *testStore) advance(duration time.Duration) {
	s.now = s.now.Add(duration)
	s.Expire(s.now)
}

// demotedNodes returns the demoted nodes, as delivered.
func (s *testStore) demotedNodes() string {
	var change model.Change
	s.TakeChanges(&change)
	for key, demotion := range change.Demotions {
		if delete(s.demoted, key.Node); demotion != nil {
			s.demoted[key.Node] = demotion
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(s.demoted)))
}

// deleteNode deletes a Node, as the existence check reports it.
func (s *testStore) deleteNode(node string) {
	s.label(node, "")
	s.TakePendingChecks()
	s.ResolveChecks(map[string]bool{node: false}, s.now)
}

// The demotion stays for a while, unless the node is known to be back.
func TestDeletedNodeStaysDemoted(t *testing.T) {
	for name, test := range map[string]struct {
		then func(*testStore)
		want string
	}{
		"nothing happens":          {func(s *testStore) { s.advance(deletedNodeRetention - 1) }, "[node-1]"},
		"nothing happens for long": {func(s *testStore) { s.advance(deletedNodeRetention) }, "[]"},
		"its label is removed": {func(s *testStore) {
			s.label("node-1", "true")
			s.label("node-1", "")
			s.ResolveChecks(map[string]bool{"node-1": true}, s.now)
		}, "[]"},
		"it returns with the label set to false": {func(s *testStore) { s.label("node-1", "false") }, "[]"},
		"it returns with the label":              {func(s *testStore) { s.label("node-1", "true"); s.advance(time.Hour) }, "[node-1]"},
		"it returns and is deleted again": {func(s *testStore) {
			s.advance(deletedNodeRetention - 1)
			s.label("node-1", "true")
			s.deleteNode("node-1")
			s.advance(deletedNodeRetention - 1)
		}, "[node-1]"},
	} {
		s := newTestStore()
		s.label("node-1", "20261122T1800Z")
		if got := s.demotedNodes(); got != "[node-1]" {
			t.Fatalf("%s: demoted nodes %s", name, got)
		}
		s.deleteNode("node-1")
		test.then(s)
		if got := s.demotedNodes(); got != test.want {
			t.Errorf("%s: demoted nodes %s, want %s", name, got, test.want)
		}
		if got := s.timers.Len(); test.want == "[]" && got != 0 {
			t.Errorf("%s: %d deadlines remain", name, got)
		}
	}
}

// The check starts once. Without a result the node counts as existing.
func TestAMissingLabelStartsAnExistenceCheck(t *testing.T) {
	s := newTestStore()
	for _, node := range []string{"node-1", "node-2", "node-3", "node-4"} {
		s.label(node, "true")
		s.label(node, "")
	}
	if diff := cmp.Diff(map[string]string{
		"node-1": "host-of-node-1", "node-2": "host-of-node-2", "node-3": "host-of-node-3", "node-4": "host-of-node-4",
	}, s.TakePendingChecks()); diff != "" || s.HasPendingChecks() || len(s.TakePendingChecks()) != 0 {
		t.Errorf("pending checks (-want +got):\n%s", diff)
	}
	if got := s.demotedNodes(); got != "[node-1 node-2 node-3 node-4]" {
		t.Errorf("before the result: demoted nodes %s", got)
	}
	s.label("node-3", "true")
	s.ResolveChecks(map[string]bool{"node-1": true, "node-2": false, "node-3": false}, s.now)
	if got := s.demotedNodes(); got != "[node-2 node-3 node-4]" {
		t.Errorf("after the result: demoted nodes %s", got)
	}
	if s.advance(checkTimeout - 1); s.demotedNodes() != "[node-2 node-3 node-4]" {
		t.Errorf("a pending check has timed out too early")
	}
	if s.advance(1); s.demotedNodes() != "[node-2 node-3]" {
		t.Errorf("demoted nodes %s, although the check has timed out", s.demotedNodes())
	}
	s.deleteNode("node-3")
	if s.advance(deletedNodeRetention); s.demotedNodes() != "[]" || len(s.checks) != 0 || s.timers.Len() != 0 {
		t.Errorf("demoted nodes %s, %d checks and %d deadlines remain", s.demotedNodes(), len(s.checks), s.timers.Len())
	}
}

// An evacuation expires only while the Node still has the label.
func TestEvacuationExpiry(t *testing.T) {
	s := newTestStore()
	for node, value := range map[string]string{
		"node-1": "20261122T1710Z", "node-2": "20261122T1720Z", "node-3": "true", "node-4": "20261122T1710Z", "node-5": "20261122T1659Z",
	} {
		s.label(node, value)
	}
	check := func(when string, passed time.Duration, want string) {
		t.Helper()
		if s.advance(passed); s.demotedNodes() != want {
			t.Errorf("%s: demoted nodes %s, want %s", when, s.demotedNodes(), want)
		}
	}
	check("one has expired", 0, "[node-1 node-2 node-3 node-4]")
	s.label("node-2", "20261122T1715Z")
	check("a minute before the first end", 9*time.Minute, "[node-1 node-2 node-3 node-4]")
	s.deleteNode("node-4")
	check("just before the first end", time.Minute-1, "[node-1 node-2 node-3 node-4]")
	if at, ok := s.Next(); !ok || at.Sub(s.now) != 1 {
		t.Errorf("next deadline %v, %v", at, ok)
	}
	check("the first end, except for the deleted node", 1, "[node-2 node-3 node-4]")
	check("one whose end was moved forward", 5*time.Minute, "[node-3]")
	s.label("node-1", "20261122T1730Z")
	check("one starts again", 0, "[node-1 node-3]")
	s.label("node-1", "true")
	check("it no longer has an end", time.Hour, "[node-1 node-3]")
	if s.timers.Len() != 0 {
		t.Errorf("%d deadlines remain", s.timers.Len())
	}
}
