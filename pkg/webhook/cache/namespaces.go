package cache

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// waitTimeout is how long a review waits for an unknown Namespace if the list is complete. Services are often created
// right after their Namespace, before a watch could report it; the API server itself waits 50 ms for that reason
// (missingNamespaceWait in k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle). A review may take seconds.
const waitTimeout = 250 * time.Millisecond

// maxWaiting bounds how many reviews wait at once; for others the Namespace is unknown. The API server only sends
// reviews for existing Namespaces, so few reviews wait, unless the watch is interrupted or there is another client.
// Then waiting reviews must not use up server.Limits.InFlight, 64 by default.
const maxWaiting = 16

// namespaces are the Namespaces of a cluster.
type namespaces struct {
	hasSynced   func() bool
	waitTimeout time.Duration
	waiting     chan struct{} // a semaphore for waiting reviews

	mu     sync.RWMutex
	cached map[string]rules.NamespaceDefaults
	added  chan struct{} // closed when a new Namespace becomes known
}

func newNamespaces() namespaces {
	return namespaces{
		waitTimeout: waitTimeout,
		waiting:     make(chan struct{}, maxWaiting),
		cached:      map[string]rules.NamespaceDefaults{},
		added:       make(chan struct{}),
	}
}

// put stores the current version of a Namespace. It takes ownership of its maps, which must not change.
func (n *namespaces) put(namespace *metav1.PartialObjectMetadata) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, isKnown := n.cached[namespace.Name]
	n.cached[namespace.Name] = rules.NamespaceDefaults{IsLoaded: true, Labels: namespace.Labels, Annotations: namespace.Annotations}
	if !isKnown {
		close(n.added)
		n.added = make(chan struct{})
	}
}

func (n *namespaces) delete(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cached, name)
}

// find returns at once if the Namespace is known, or if the list is not complete yet: then waiting would not help.
func (n *namespaces) find(name string) rules.NamespaceDefaults {
	found, _ := n.fetch(name)
	if found.IsLoaded || !n.hasSynced() {
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

// waitFor returns a Namespace once it is known, or the zero value after waitTimeout.
func (n *namespaces) waitFor(name string) rules.NamespaceDefaults {
	timer := time.NewTimer(n.waitTimeout)
	defer timer.Stop()
	found, added := n.fetch(name)
	for !found.IsLoaded {
		select {
		case <-added:
			found, added = n.fetch(name)
		case <-timer.C:
			return found
		}
	}
	return found
}

// fetch returns a Namespace, and a channel that is closed when a new one becomes known.
func (n *namespaces) fetch(name string) (found rules.NamespaceDefaults, added <-chan struct{}) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.cached[name], n.added
}
