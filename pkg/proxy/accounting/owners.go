//go:build linux

package accounting

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const (
	// remembered is for how long it is known whose a frontend was, and where an endpoint was, after they left: a connection
	// of TCP ends two minutes after its last packet.
	remembered = 10 * time.Minute
	// mostLeft is how many endpoints that left are remembered of a Service, the newest.
	mostLeft = 4096
)

// Owners know which Service owns a frontend, and where its endpoints are. They are a reader of the proxy's decisions, and
// may be asked at any time: whoever asks waits for no sync, and no sync for him.
type Owners struct {
	now       func() time.Time
	frontends sync.Map // model.Frontend to *owner
	services  sync.Map // model.ObjectName to *digest: those that are in force

	// What follows is of the goroutine that syncs.
	left    map[model.ObjectName][]leftEndpoint // by when they left
	retired []retired                           // by when they were

	complete     chan struct{} // closed once all Services are known
	completeOnce sync.Once
}

// NewOwners returns owners of nothing yet.
func NewOwners(now func() time.Time) *Owners {
	return &Owners{now: now, left: map[model.ObjectName][]leftEndpoint{}, complete: make(chan struct{})}
}

// digest is what is kept of the decisions about a Service.
type digest struct {
	targets   []target
	frontends []frontend
}

// frontend leads to the target of this index.
type frontend struct {
	model.Frontend
	target int
}

// target is where the frontends of one port in one family lead.
type target struct {
	// origins are as many as there are places; the first one is nowhere: it is that of an endpoint that nobody knows.
	origins   []*Origin
	endpoints []located // sorted by address
}

// located is an endpoint, and which origin connections to it have.
type located struct {
	addr   netip.AddrPort
	origin uint32
}

// leftEndpoint is an endpoint that left a Service.
type leftEndpoint struct {
	addr   netip.AddrPort
	origin *Origin
	at     time.Time
}

// owner is who owns a frontend. It never changes.
type owner struct {
	service model.ObjectName
	target  *target
	left    []leftEndpoint
	// retired: the Service has lost the frontend.
	retired bool
}

// retired is a frontend that its owner lost, as long as nobody else has it.
type retired struct {
	frontend model.Frontend
	owner    *owner
	at       time.Time
}

// Digest returns whose the frontends of a Service are, and where they lead; nil if it has none.
func (*Owners) Digest(decisions []selection.Decision) any {
	var d digest
	for i := range decisions {
		decision := &decisions[i]
		if decision.Service.IsHeadless || len(decision.Owned) == 0 {
			continue
		}
		for _, owned := range decision.Owned {
			d.frontends = append(d.frontends, frontend{owned.Frontend, len(d.targets)})
		}
		d.targets = append(d.targets, targetOf(decision))
	}
	if len(d.frontends) == 0 {
		return nil
	}
	return &d
}

func targetOf(decision *selection.Decision) target {
	origin := func(place Place) *Origin {
		return &Origin{Service: decision.Service.Name, Reserved: decision.Service.Topology.Account, Place: place}
	}
	t := target{origins: []*Origin{origin(nowhere)}, endpoints: make([]located, 0, len(decision.Endpoints))}
	places := map[Place]uint32{}
	for i := range decision.Endpoints {
		endpoint := &decision.Endpoints[i]
		place := placeOf(decision, endpoint)
		at, known := places[place]
		if !known {
			at = uint32(len(t.origins))
			places[place], t.origins = at, append(t.origins, origin(place))
		}
		t.endpoints = append(t.endpoints, located{endpoint.Addr, at})
	}
	slices.SortFunc(t.endpoints, func(a, b located) int { return a.addr.Compare(b.addr) })
	return t
}

// find returns the origin of connections to an endpoint; nil if nobody knows it.
func (t *target) find(endpoint netip.AddrPort) *Origin {
	at, found := slices.BinarySearchFunc(t.endpoints, endpoint, func(l located, addr netip.AddrPort) int { return l.addr.Compare(addr) })
	if !found {
		return nil
	}
	return t.origins[t.endpoints[at].origin]
}

func (d *digest) has(endpoint netip.AddrPort) bool {
	return slices.ContainsFunc(d.targets, func(t target) bool { return t.find(endpoint) != nil })
}

// same reports whether two digests say the same.
func (d *digest) same(other *digest) bool {
	return slices.Equal(d.frontends, other.frontends) && slices.EqualFunc(d.targets, other.targets, func(a, b target) bool {
		return slices.Equal(a.endpoints, b.endpoints) && slices.EqualFunc(a.origins, b.origins, func(a, b *Origin) bool { return *a == *b })
	})
}

// Accept takes what is in force of a Service in place of what was.
func (o *Owners) Accept(service model.ObjectName, accepted any) {
	now, _ := accepted.(*digest)
	before := o.inForce(service)
	if now == nil {
		o.remove(service, before)
		return
	}
	if before != nil && before.same(now) {
		// Others may have had some of its frontends meanwhile.
		if !slices.ContainsFunc(now.frontends, func(f frontend) bool { return !o.isOwner(service, f.Frontend) }) {
			return
		}
	}
	o.noteLeft(service, before, now)
	owners := make([]*owner, len(now.targets))
	for i := range now.targets {
		owners[i] = &owner{service: service, target: &now.targets[i], left: o.left[service]}
	}
	stays := make(map[model.Frontend]bool, len(now.frontends))
	for _, f := range now.frontends {
		stays[f.Frontend] = true
		o.frontends.Store(f.Frontend, owners[f.target])
	}
	if before != nil {
		for _, f := range before.frontends {
			if !stays[f.Frontend] {
				o.retire(service, f.Frontend)
			}
		}
	}
	o.services.Store(service, now)
}

func (o *Owners) inForce(service model.ObjectName) *digest {
	found, _ := o.services.Load(service)
	d, _ := found.(*digest)
	return d
}

func (o *Owners) remove(service model.ObjectName, before *digest) {
	if before == nil {
		return
	}
	for _, f := range before.frontends {
		o.retire(service, f.Frontend)
	}
	o.services.Delete(service)
	delete(o.left, service)
}

// noteLeft notes the endpoints that a Service loses.
func (o *Owners) noteLeft(service model.ObjectName, before, now *digest) {
	at := o.now()
	list := slices.DeleteFunc(slices.Clone(o.left[service]), func(left leftEndpoint) bool {
		return at.Sub(left.at) > remembered || now.has(left.addr)
	})
	if before != nil {
		for i := range before.targets {
			t := &before.targets[i]
			for _, endpoint := range t.endpoints {
				stays := i < len(now.targets) && now.targets[i].find(endpoint.addr) != nil || now.has(endpoint.addr)
				if !stays {
					list = append(list, leftEndpoint{endpoint.addr, t.origins[endpoint.origin], at})
				}
			}
		}
	}
	if len(list) == 0 {
		delete(o.left, service)
		return
	}
	o.left[service] = list[max(0, len(list)-mostLeft):]
}

func (o *Owners) isOwner(service model.ObjectName, frontend model.Frontend) bool {
	owner := o.ownerOf(frontend)
	return owner != nil && owner.service == service && !owner.retired
}

func (o *Owners) ownerOf(frontend model.Frontend) *owner {
	found, _ := o.frontends.Load(frontend)
	owner, _ := found.(*owner)
	return owner
}

// retire takes a frontend from a Service, unless another one has it. Until somebody does, it is known whose it was.
func (o *Owners) retire(service model.ObjectName, frontend model.Frontend) {
	before := o.ownerOf(frontend)
	if before == nil || before.service != service || before.retired {
		return
	}
	former := &owner{service: service, target: before.target, left: before.left, retired: true}
	o.frontends.Store(frontend, former)
	o.retired = append(o.retired, retired{frontend, former, o.now()})
}

// Lose takes frontends from a Service.
func (o *Owners) Lose(service model.ObjectName, frontends []model.Frontend) {
	for _, frontend := range frontends {
		o.retire(service, frontend)
	}
}

// Complete is closed once all Services are known.
func (o *Owners) Complete() <-chan struct{} { return o.complete }

// Synced forgets what left long ago.
func (o *Owners) Synced(selection.Sync) {
	o.completeOnce.Do(func() { close(o.complete) })
	now := o.now()
	old := 0
	for ; old < len(o.retired) && now.Sub(o.retired[old].at) > remembered; old++ {
		o.frontends.CompareAndDelete(o.retired[old].frontend, o.retired[old].owner)
	}
	o.retired = slices.Delete(o.retired, 0, old)
}

// Has reports whether a Service is there.
func (o *Owners) Has(service model.ObjectName) bool {
	_, has := o.services.Load(service)
	return has
}

// Of returns whose a connection is; nil if our tables did not translate it.
//
// What was dialled is a frontend, and who answers one of its endpoints. A node port has a number and no address, and other
// programs may translate the same number at any address: so who answers must be known.
func (o *Owners) Of(e *conntrack.Entry) *Origin {
	dialled := e.Dialled()
	if e.Status&conntrack.DestinationNAT == 0 || e.Zone != 0 || e.Answerer() == dialled {
		return nil
	}
	frontend := model.Frontend{Addr: dialled.Addr(), Protocol: e.Protocol, Port: dialled.Port()}
	if owner := o.ownerOf(frontend); owner != nil {
		if origin := owner.find(e.Answerer()); origin != nil {
			return origin
		}
		return owner.target.origins[0]
	}
	frontend.Addr = model.AnyAddr(model.FamilyOf(dialled.Addr()))
	if owner := o.ownerOf(frontend); owner != nil {
		return owner.find(e.Answerer())
	}
	return nil
}

func (o *owner) find(endpoint netip.AddrPort) *Origin {
	if origin := o.target.find(endpoint); origin != nil {
		return origin
	}
	for _, left := range slices.Backward(o.left) {
		if left.addr == endpoint {
			return left.origin
		}
	}
	return nil
}
