package cache

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// nodes are the Nodes of a cluster. Readers get a copy that is made only when labels change, which is rare, not for
// each reader.
type nodes struct {
	listed func() bool

	mu      sync.Mutex
	counted *rules.NodeLabels
	copied  atomic.Pointer[rules.NodeLabels] // nil until the first snapshot after all were listed
}

func newNodes() nodes { return nodes{counted: rules.NewNodeLabels()} }

// put takes over a Node as it is now. Most changes of Nodes are heartbeats, which change no label: they end here.
func (n *nodes) put(now *metav1.PartialObjectMetadata) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counted.Put(now.Name, now.Labels) {
		n.isChanged()
	}
}

func (n *nodes) delete(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counted.Delete(name)
	n.isChanged()
}

// isChanged makes a new copy, once there has been one. The caller holds mu.
func (n *nodes) isChanged() {
	if n.copied.Load() != nil {
		n.copied.Store(n.counted.Snapshot())
	}
}

// snapshot returns the newest copy; nil until all Nodes are listed.
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
