package apiserver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

const evacuateLabel = "vicinity.dev/evacuate"

func isEvacuated(node string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool { return state.DemotionOf(node, model.IPv4) != nil }
}

func noneEvacuated(nodes ...string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool {
		for _, node := range nodes {
			if state.DemotionOf(node, model.IPv4) != nil {
				return false
			}
		}
		return true
	}
}

// TestLabelEvacuatesNode covers this node and another, whether or not a Service needs node labels. An invalid label
// counts as absent.
func TestLabelEvacuatesNode(t *testing.T) {
	w := newWriter(t)
	self, other := w.node("self"), w.node("other", evacuateLabel+"=true")
	f := follow(t, admin(), self, "").started()
	if !f.holds(isEvacuated(other)) || !f.holds(noneEvacuated(self)) {
		t.Error("the first state lacks the evacuated node")
	}
	w.label(self, evacuateLabel, "20991122T1800Z")
	f.waitUntil("this node is evacuated until a time", func(state *model.Cluster) bool {
		evacuation := state.DemotionOf(self, model.IPv4)
		return evacuation != nil && evacuation.Until.Equal(time.Date(2099, 11, 22, 18, 0, 0, 0, time.UTC))
	})
	w.label(other, evacuateLabel, "false")
	f.waitUntil("false counts as no label", noneEvacuated(other))
	w.label(other, evacuateLabel, "yes")
	w.label(self, evacuateLabel, "soon")
	f.waitUntil("two labels are rejected", func(*model.Cluster) bool { return rejectedCount(f, self, other) == 2 })
	f.waitUntil("an invalid label counts as no label", noneEvacuated(self, other)) // another watch than the finding
	w.label(other, evacuateLabel, "True")
	f.waitUntil("the label is valid again", isEvacuated(other))
	w.label(self, evacuateLabel, "TRUE")
	f.waitUntil("this node's label is valid again", isEvacuated(self))
	w.unlabel(self, evacuateLabel)
	f.waitUntil("a removed label", noneEvacuated(self))
	f.waitUntil("no label is rejected", func(*model.Cluster) bool { return rejectedCount(f, self, other) == 0 })
}

// rejectedCount counts the findings about some nodes. The caller must hold the follower's lock.
func rejectedCount(f *follower, nodes ...string) (count int) {
	for problem := range f.problems {
		if slices.Contains(nodes, problem.Name.Name) {
			count++
		}
	}
	return count
}

// TestDeletedNodeStaysDemoted checks that a Node which is deleted while evacuated stays demoted,
// for two minutes. In the watch with the label selector its deletion looks like a removed label, after which a node
// would be used again.
func TestDeletedNodeStaysDemoted(t *testing.T) {
	w := newWriter(t)
	const hostname = "kubernetes.io/hostname="
	self, other := w.node("self"), w.node("other", evacuateLabel+"=true", hostname+"other")
	deleted := w.node("gone", evacuateLabel+"=true", hostname+"gone")
	f := follow(t, admin(), self, "").started()
	w.deleteNode(deleted)
	w.unlabel(other, evacuateLabel)
	f.waitUntil("the removed label", noneEvacuated(other))
	time.Sleep(4 * time.Second) // longer than an existence check
	if !f.holds(isEvacuated(deleted)) {
		t.Error("the deleted node is no longer demoted, although slices may still list its endpoints")
	}
}
