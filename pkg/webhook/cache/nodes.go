package cache

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// nodes are the Nodes of a cluster. All callers share one snapshot, which is copied only when labels change, which is
// rare.
type nodes struct {
	listed func() bool

	mu      sync.Mutex
	counted *rules.NodeLabels
	copied  atomic.Pointer[rules.NodeLabels] // nil until the first snapshot after the initial list
}

func newNodes() nodes { return nodes{counted: rules.NewNodeLabels()} }

// put stores the current version of a Node. Most updates of Nodes are heartbeats, which change no label and are
// ignored.
func (n *nodes) put(now *metav1.PartialObjectMetadata) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counted.Put(now.Name, now.Labels) {
		n.updateSnapshot()
	}
}

func (n *nodes) delete(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counted.Delete(name)
	n.updateSnapshot()
}

// updateSnapshot updates the snapshot, if there is one. The caller must hold mu.
func (n *nodes) updateSnapshot() {
	if n.copied.Load() != nil {
		n.copied.Store(n.counted.Snapshot())
	}
}

// snapshot returns the current snapshot; nil until all Nodes are listed.
func (n *nodes) snapshot() *rules.NodeLabels {
	if copied := n.copied.Load(); copied != nil {
		return copied
	}
	if !n.listed() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.copied.CompareAndSwap(nil, n.counted.Snapshot())
	return n.copied.Load()
}
