package cache

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// waitTimeout is how long a review waits for an unknown Namespace when the others are known. Services are often made right
// after their Namespace, before a watch could report it; the API server itself waits 50 ms for that reason
// (missingNamespaceWait in k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle). A review may take seconds.
const waitTimeout = 250 * time.Millisecond

// maxWaiting is how many reviews wait at the same moment; for others the Namespace is unknown at once. The API server
// asks only about existing Namespaces, so few reviews wait, unless our watch is interrupted, or another client asks:
// then waiting reviews must not take the places of all reviews (server.Limits.InFlight, 64 by default).
const maxWaiting = 16

// namespaces are the Namespaces of a cluster.
type namespaces struct {
	listed      func() bool
	waitTimeout time.Duration
	waiting     chan struct{} // holds something for each review that waits

	mu      sync.RWMutex
	cached  map[string]rules.NamespaceDefaults
	arrival chan struct{} // closed when another Namespace becomes known
}

func newNamespaces() namespaces {
	return namespaces{
		waitTimeout: waitTimeout,
		waiting:     make(chan struct{}, maxWaiting),
		cached:      map[string]rules.NamespaceDefaults{},
		arrival:     make(chan struct{}),
	}
}

// put takes over a Namespace as it is now. Its maps belong to the cache and never change.
func (n *namespaces) put(now *metav1.PartialObjectMetadata) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, was := n.cached[now.Name]
	n.cached[now.Name] = rules.NamespaceDefaults{IsLoaded: true, Labels: now.Labels, Annotations: now.Annotations}
	if !was {
		close(n.arrival)
		n.arrival = make(chan struct{})
	}
}

func (n *namespaces) delete(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cached, name)
}

// find returns at once if the Namespace is known, or if the list is not complete yet: waiting here for the list gains
// nothing.
func (n *namespaces) find(name string) rules.NamespaceDefaults {
	found, _ := n.fetch(name)
	if found.IsLoaded || !n.listed() {
		return found
	}
	select {
	case n.waiting <- struct{}{}:
		defer func() { <-n.waiting }()
		return n.waitFor(name)
	default:
		return found
	}
}

// waitFor returns a Namespace when it is known, or the patience is over.
func (n *namespaces) waitFor(name string) rules.NamespaceDefaults {
	timer := time.NewTimer(n.waitTimeout)
	defer timer.Stop()
	found, arrival := n.fetch(name)
	for !found.IsLoaded {
		select {
		case <-arrival:
			found, arrival = n.fetch(name)
		case <-timer.C:
			return found
		}
	}
	return found
}

// fetch returns a Namespace, and a channel that is closed when another one arrives.
func (n *namespaces) fetch(name string) (found rules.NamespaceDefaults, arrival <-chan struct{}) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.cached[name], n.arrival
}
