//go:build linux

package probe

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// Prober looks, dials, and reports what was decided.
type Prober struct {
	table  conntrack.Table // whose looks rest
	atOnce conntrack.Table
	owners *owners.Reader
	served *Served
	own    string
	tell   Observer
	dial   func(ctx context.Context, addr netip.AddrPort, within time.Duration) (reachability.Kind, time.Duration)

	mutex   sync.Mutex
	judge   *reachability.Judge
	nodes   map[string]reachability.Place // that can be dialled
	servers []netip.AddrPort
	placed  wake.Signal // holds a signal when nodes or servers have changed
}

// Observer is told what happens, by one goroutine.
type Observer interface {
	// Looked is called after each look.
	Looked(look Look, err error)
	// Decided is called after something was decided.
	Decided(orders *reachability.Orders)
	// Known is called with what is known, after something was decided and every few seconds.
	Known(status reachability.Status)
}

// Options are what a Prober is made of.
type Options struct {
	Own    string // the name of this node
	Table  conntrack.Table
	AtOnce conntrack.Table // the same table without rests
	Owners *owners.Reader  // with places
	Served *Served
	Tell   Observer
}

// New returns a Prober that knows of no node.
func New(options Options) *Prober {
	return &Prober{
		table: options.Table, atOnce: options.AtOnce, owners: options.Owners, served: options.Served, own: options.Own, tell: options.Tell,
		dial: Dial, judge: reachability.NewJudge(options.Own), placed: wake.NewSignal(),
	}
}

// Nodes says where the proxies on other nodes are dialled.
func (p *Prober) Nodes(nodes map[string]reachability.Place) {
	p.mutex.Lock()
	p.nodes = nodes
	p.mutex.Unlock()
	p.placed.Send()
}

// Servers says where API servers are reached.
func (p *Prober) Servers(servers []netip.AddrPort) {
	p.mutex.Lock()
	p.servers = servers
	p.mutex.Unlock()
	p.placed.Send()
}

// Status returns what is known.
func (p *Prober) Status() reachability.Status {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.judge.Status()
}

// heard is the result of a dial.
type heard struct {
	id   uint64
	kind reachability.Kind
	took time.Duration
}

// flowsTold is the answer to a question for answered connections.
type flowsTold struct {
	nodes []string
	ids   map[string][]uint32
	err   error
}

// knownEvery is how often Known is called while nothing is decided.
const knownEvery = 5 * time.Second

// Run works until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	looks, answers, told := make(chan Look), make(chan heard), make(chan flowsTold)
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { p.lookAgainAndAgain(ctx, looks) })
	next, known := time.NewTimer(0), time.NewTicker(knownEvery)
	defer next.Stop()
	defer known.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.placed:
			p.place()
		case <-p.served.changed:
			p.place()
		case look := <-looks:
			p.do(func(j *reachability.Judge) { j.Looked(time.Now(), look.flows) })
		case answer := <-answers:
			p.do(func(j *reachability.Judge) { j.Answered(time.Now(), answer.id, answer.kind, answer.took) })
			if !p.settle(ctx, answers) {
				return
			}
		case flows := <-told:
			p.do(func(j *reachability.Judge) { j.Flows(flows.nodes, flows.ids, flows.err == nil) })
		case <-known.C:
			p.tell.Known(p.Status())
		case <-next.C:
		}
		orders := p.step()
		for _, dial := range orders.Dials {
			working.Go(func() { p.answer(ctx, dial, answers) })
		}
		if len(orders.Ask) > 0 {
			working.Go(func() {
				ids, err := p.answered(ctx, orders.Ask)
				send(ctx, told, flowsTold{orders.Ask, ids, err})
			})
		}
		next.Reset(time.Until(orders.Next))
	}
}

func (p *Prober) do(f func(*reachability.Judge)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	f(p.judge)
}

// settle takes in all answers that are there before a step, because the cost of a step grows with the nodes that are
// out.
func (p *Prober) settle(ctx context.Context, answers <-chan heard) bool {
	moment := time.NewTimer(5 * time.Millisecond)
	defer moment.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case answer := <-answers:
			p.do(func(j *reachability.Judge) { j.Answered(time.Now(), answer.id, answer.kind, answer.took) })
		case <-moment.C:
			return true
		}
	}
}

func (p *Prober) step() reachability.Orders {
	p.mutex.Lock()
	orders := p.judge.Step(time.Now())
	p.mutex.Unlock()
	if len(orders.Out)+len(orders.Back)+len(orders.Ended) > 0 || orders.CutOff || orders.Reconnected {
		p.tell.Decided(&orders)
		p.tell.Known(p.Status())
	}
	return orders
}

// answer dials, and reports the result.
func (p *Prober) answer(ctx context.Context, dial reachability.Dial, answers chan<- heard) {
	a := heard{id: dial.ID, kind: reachability.NotDialled}
	if !p.isTranslated(dial.Addr) {
		a.kind, a.took = p.dial(ctx, dial.Addr, dial.Within)
	}
	send(ctx, answers, a)
}

func send[T any](ctx context.Context, to chan<- T, what T) {
	select {
	case to <- what:
	case <-ctx.Done():
	}
}

// How often there is a look: a walk through an empty table takes the kernel some milliseconds, too. After quietAfter without
// a connection that waits for its answer, it is half as often. If a look takes long, the table makes it rest longer.
const (
	lookEvery      = 500 * time.Millisecond
	lookEveryQuiet = time.Second
	quietAfter     = time.Minute
)

func (p *Prober) lookAgainAndAgain(ctx context.Context, looks chan<- Look) {
	next, busy := time.NewTimer(lookEvery), time.Now()
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		look, err := p.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if p.tell.Looked(look, err); err == nil {
			send(ctx, looks, look)
		}
		if look.Unanswered > 0 {
			busy = time.Now()
		}
		if time.Since(busy) < quietAfter {
			next.Reset(lookEvery)
		} else {
			next.Reset(lookEveryQuiet)
		}
	}
}

// place tells the judge whom it may have dialled: nodes with endpoints, and API servers elsewhere. Loopback and this
// node's own addresses would answer even without a network.
func (p *Prober) place() {
	served, local := p.served.known()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	isElsewhere := func(addr netip.AddrPort) bool {
		return !addr.Addr().IsLoopback() && !slices.Contains(local, addr.Addr())
	}
	places := map[string]reachability.Place{}
	for name, place := range p.nodes {
		if name != p.own && served[name] && isElsewhere(place.Addr) {
			places[name] = place
		}
	}
	servers := slices.DeleteFunc(slices.Clone(p.servers), func(addr netip.AddrPort) bool { return !isElsewhere(addr) })
	p.judge.Place(time.Now(), places, servers)
}
