package cache

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// nodes are the Nodes of a cluster. All callers share one snapshot. It is replaced when labels change, which is rare.
type nodes struct {
	hasSynced func() bool

	mu     sync.Mutex
	labels *rules.NodeLabels
	shared atomic.Pointer[rules.NodeLabels] // nil until the first snapshot after the initial list
}

func newNodes() nodes { return nodes{labels: rules.NewNodeLabels()} }

// put stores the current version of a Node. Most updates of Nodes are heartbeats, which change no label and are
// ignored.
func (n *nodes) put(node *metav1.PartialObjectMetadata) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.labels.Put(node.Name, node.Labels) {
		n.updateSnapshot()
	}
}

func (n *nodes) delete(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.labels.Delete(name)
	n.updateSnapshot()
}

// updateSnapshot updates the snapshot, if there is one. The caller must hold mu.
func (n *nodes) updateSnapshot() {
	if n.shared.Load() != nil {
		n.shared.Store(n.labels.Snapshot())
	}
}

// snapshot returns the current snapshot; nil until all Nodes are listed.
func (n *nodes) snapshot() *rules.NodeLabels {
	if shared := n.shared.Load(); shared != nil {
		return shared
	}
	if !n.hasSynced() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shared.CompareAndSwap(nil, n.labels.Snapshot())
	return n.shared.Load()
}
