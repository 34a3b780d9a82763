//go:build linux

package localhost

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// nodePort is a TCP node port in one family.
type nodePort struct {
	family model.Family
	port   uint16
}

// target is the destination of connections to a node port.
type target struct {
	// endpoints are listed once per slot, as in the tables. If there are none, connections are refused.
	endpoints []netip.AddrPort
	// stickyOnly are endpoints that keep clients with session affinity and get no new ones.
	stickyOnly []netip.AddrPort
	// affinity is the session affinity timeout; zero if there is no session affinity.
	affinity time.Duration
}

func (t target) equal(other target) bool {
	return t.affinity == other.affinity && slices.Equal(t.endpoints, other.endpoints) && slices.Equal(t.stickyOnly, other.stickyOnly)
}

// targetsOf returns a Service's node ports and their targets, in the families that have an address. Although the
// clients are on this node, externalTrafficPolicy: Local restricts them to this node's endpoints, as in kube-proxy.
func targetsOf(decisions []selection.Decision, addrs map[model.Family]netip.Addr) map[nodePort]target {
	var targets map[nodePort]target
	for _, decision := range decisions {
		_, isServed := addrs[decision.Family]
		if !isServed || decision.Port.Protocol != model.TCP || decision.Service.IsHeadless {
			continue
		}
		i := slices.IndexFunc(decision.Frontends, func(owned model.PortFrontend) bool { return owned.Kind == model.NodePort })
		if i < 0 {
			continue
		}
		port := ruleset.NewPort(decision)
		dest := target{endpoints: port.Cluster, stickyOnly: port.StickyOnly, affinity: port.Affinity}
		if decision.Service.ExternalTrafficLocal {
			dest.endpoints, dest.stickyOnly = port.Local, nil
		}
		if targets == nil {
			targets = map[nodePort]target{}
		}
		targets[nodePort{decision.Family, decision.Frontends[i].Port}] = dest
	}
	return targets
}

func sameTargets(a, b map[nodePort]target) bool {
	return maps.EqualFunc(a, b, target.equal)
}

// picker picks an endpoint for each connection. All clients have the same address, so session affinity treats them as
// one.
type picker struct {
	mutex  sync.Mutex
	target target
	last   netip.AddrPort
	lastAt time.Time
}

func (p *picker) update(dest target) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.target = dest
}

// pick returns an endpoint for a new connection; false if there is none.
func (p *picker) pick(now time.Time) (netip.AddrPort, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	t := p.target
	if len(t.endpoints) == 0 {
		return netip.AddrPort{}, false
	}
	hasAffinity := t.affinity > 0 && p.last.IsValid() && now.Sub(p.lastAt) < t.affinity &&
		(slices.Contains(t.endpoints, p.last) || slices.Contains(t.stickyOnly, p.last))
	if !hasAffinity {
		p.last = t.endpoints[rand.IntN(len(t.endpoints))]
	}
	p.lastAt = now
	return p.last, true
}
