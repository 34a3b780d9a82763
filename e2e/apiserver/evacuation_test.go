package apiserver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

const evacuateLabel = "vicinity.dev/evacuate"

func isEvacuated(node string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool { return state.Avoid(node) != nil }
}

func staysWhole(nodes ...string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool {
		for _, node := range nodes {
			if state.Avoid(node) != nil {
				return false
			}
		}
		return true
	}
}

// TestALabelEvacuatesANode, this one or another, whether or not a Service needs the labels of nodes; and one that nobody
// can read counts as absent.
func TestALabelEvacuatesANode(t *testing.T) {
	w := newWriter(t)
	self, other := w.node("self"), w.node("other", evacuateLabel+"=true")
	f := follow(t, admin(), self, "").started()
	if !f.holds(isEvacuated(other)) || !f.holds(staysWhole(self)) {
		t.Error("the first state lacks what is being evacuated")
	}
	w.label(self, evacuateLabel, "20991122T1800Z")
	f.until("this node is evacuated until a time", func(state *model.Cluster) bool {
		evacuation := state.Avoid(self)
		return evacuation != nil && evacuation.Until.Equal(time.Date(2099, 11, 22, 18, 0, 0, 0, time.UTC))
	})
	w.label(other, evacuateLabel, "false")
	f.until("false is as good as no label", staysWhole(other))
	w.label(other, evacuateLabel, "yes")
	w.label(self, evacuateLabel, "soon")
	f.until("two labels are wrong", func(*model.Cluster) bool { return refused(f, self, other) == 2 })
	if !f.holds(staysWhole(self, other)) {
		t.Error("a label that nobody can read evacuates a node")
	}
	w.label(other, evacuateLabel, "True")
	f.until("it is put right", isEvacuated(other))
	w.label(self, evacuateLabel, "TRUE")
	f.until("this one, too", isEvacuated(self))
	w.unlabel(self, evacuateLabel)
	f.until("a label that goes", staysWhole(self))
	w.deleteNode(other)
	f.until("a node that goes", staysWhole(other))
	f.until("nothing is refused any more", func(*model.Cluster) bool { return refused(f, self, other) == 0 })
}

// refused counts the problems of some nodes. The follower holds its lock.
func refused(f *follower, nodes ...string) (count int) {
	for problem := range f.problems {
		if slices.Contains(nodes, problem.Name.Name) {
			count++
		}
	}
	return count
}
