package cluster

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// patience is how long a review waits for an unknown Namespace when the others are known. Services are often made right
// after their Namespace, before a watch could report it; the API server itself waits 50 ms for that reason
// (missingNamespaceWait in k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle). A review may take seconds.
const patience = 250 * time.Millisecond

// maxWaiting is how many reviews wait at the same moment; for others the Namespace is unknown at once. The API server
// asks only about existing Namespaces, so few reviews wait, unless our watch is interrupted, or another client asks:
// then waiting reviews must not take the places of all reviews (server.Limits.InFlight, 64 by default).
const maxWaiting = 16

// namespaces are the Namespaces of a cluster.
type namespaces struct {
	listed   func() bool
	patience time.Duration
	waiting  chan struct{} // holds something for each review that waits

	mu      sync.RWMutex
	known   map[string]rules.NamespaceDefaults
	arrival chan struct{} // closed when another Namespace becomes known
}

func newNamespaces() namespaces {
	return namespaces{
		patience: patience,
		waiting:  make(chan struct{}, maxWaiting),
		known:    map[string]rules.NamespaceDefaults{},
		arrival:  make(chan struct{}),
	}
}

// put takes over a Namespace as it is now. Its maps belong to the cache and never change.
func (n *namespaces) put(now *metav1.PartialObjectMetadata) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, was := n.known[now.Name]
	n.known[now.Name] = rules.NamespaceDefaults{Known: true, Labels: now.Labels, Annotations: now.Annotations}
	if !was {
		close(n.arrival)
		n.arrival = make(chan struct{})
	}
}

func (n *namespaces) gone(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, name)
}

// find returns at once if the Namespace is known, or if the list is not complete yet: waiting here for the list gains
// nothing.
func (n *namespaces) find(name string) rules.NamespaceDefaults {
	found, _ := n.look(name)
	if found.Known || !n.listed() {
		return found
	}
	select {
	case n.waiting <- struct{}{}:
		defer func() { <-n.waiting }()
		return n.await(name)
	default:
		return found
	}
}

// await returns a Namespace when it is known, or the patience is over.
func (n *namespaces) await(name string) rules.NamespaceDefaults {
	timer := time.NewTimer(n.patience)
	defer timer.Stop()
	found, arrival := n.look(name)
	for !found.Known {
		select {
		case <-arrival:
			found, arrival = n.look(name)
		case <-timer.C:
			return found
		}
	}
	return found
}

// look returns a Namespace, and a channel that is closed when another one arrives.
func (n *namespaces) look(name string) (found rules.NamespaceDefaults, arrival <-chan struct{}) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known[name], n.arrival
}
