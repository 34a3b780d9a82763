package proxy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// owners is a reader that knows the owner of each frontend. It keeps that in two ways, so that one shows what the other
// hides: by Service, where a frontend may have two owners, and by frontend, where the newest decision counts.
type owners struct {
	t          testing.TB
	byService  map[model.ObjectName]map[model.Frontend]bool
	byFrontend map[model.Frontend]model.ObjectName
	lost       int // how often a Service lost a frontend and stayed
}

func newOwners(t testing.TB) *owners {
	return &owners{
		t: t, byService: map[model.ObjectName]map[model.Frontend]bool{}, byFrontend: map[model.Frontend]model.ObjectName{},
	}
}

func (*owners) Digest(decisions []selection.Decision) any {
	var frontends []model.Frontend
	for _, decision := range decisions {
		for _, owned := range decision.Owned {
			frontends = append(frontends, owned.Frontend)
		}
	}
	return frontends
}

func (o *owners) Accept(service model.ObjectName, digest any) {
	for frontend := range o.byService[service] {
		o.leave(service, frontend)
	}
	delete(o.byService, service)
	frontends, _ := digest.([]model.Frontend)
	for _, frontend := range frontends {
		if o.byService[service] == nil {
			o.byService[service] = map[model.Frontend]bool{}
		}
		o.byService[service][frontend] = true
		o.byFrontend[frontend] = service
	}
}

func (o *owners) Lose(service model.ObjectName, frontends []model.Frontend) {
	for _, frontend := range frontends {
		if o.byService[service][frontend] {
			o.lost++
			o.leave(service, frontend)
			delete(o.byService[service], frontend)
		}
	}
}

func (o *owners) leave(service model.ObjectName, frontend model.Frontend) {
	if o.byFrontend[frontend] == service {
		delete(o.byFrontend, frontend)
	}
}

// Synced checks that no frontend has two owners.
func (o *owners) Synced(selection.Sync) {
	all := map[model.Frontend]model.ObjectName{}
	for service, frontends := range o.byService {
		for frontend := range frontends {
			if other, two := all[frontend]; two {
				o.t.Errorf("%s is of %s and of %s", frontend, service, other)
			}
			all[frontend] = service
		}
	}
	if diff := cmp.Diff(all, o.byFrontend, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		o.t.Errorf("owners (-by Service +by frontend):\n%s", diff)
	}
}

// agree checks the reader against the tables, whose elements name their owners in comments. While something waits for
// its turn, the tables may have more.
func (o *owners) agree(kernel *memoryKernel, waits bool) {
	o.t.Helper()
	got, want := map[model.Frontend]string{}, map[model.Frontend]string{}
	for frontend, service := range o.byFrontend {
		got[frontend] = service.String()
	}
	for _, family := range model.Families {
		if !kernel.Tables.Objects(family).Table {
			continue
		}
		for _, set := range []ruleset.Set{ruleset.Services, ruleset.NodePorts} {
			for _, element := range elementsOf(o.t, kernel, family, set) {
				owner, _, _ := strings.Cut(element.Comment, ":")
				frontend := ruleset.FrontendOf(family, element)
				if _, isKnown := got[frontend]; isKnown || !waits {
					want[frontend] = owner
				}
			}
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		o.t.Errorf("owners (-tables +reader):\n%s", diff)
	}
}

// moodyKernel refuses elements of frontends at random, and fails at random, before and after it does what it is asked.
type moodyKernel struct {
	faultyKernel
	random  *rand.Rand
	percent int
	refused int // elements
}

func (k *moodyKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	var refusals []ruleset.Refusal
	for _, op := range batch.Ops {
		eachThing(op, func(this thing, element *ruleset.Element) {
			if op.Verb == ruleset.Add && this.name == ruleset.Services.Name && element != nil && k.random.IntN(100) < k.percent {
				refusals = append(refusals, ruleset.Refusal{Op: op, Element: element, Err: fmt.Errorf("adding element: %w", syscall.EINVAL)})
			}
		})
	}
	if k.refused += len(refusals); len(refusals) > 0 {
		return &ruleset.RefusedError{Refusals: refusals}
	}
	return k.faultyKernel.Commit(ctx, batch)
}

// TestAReaderKnowsWhoseEachFrontendIs after any history, whatever the kernel refuses, and whenever everything is written
// anew.
func TestAReaderKnowsWhoseEachFrontendIs(t *testing.T) {
	lost, refused := 0, 0
	for seed := range uint64(24) {
		kernel, chance := &memoryKernel{}, rand.New(rand.NewPCG(seed, 2))
		moody := &moodyKernel{random: chance, percent: 8, faultyKernel: faultyKernel{kernel, func() (bool, bool) {
			return chance.IntN(8) == 0, chance.IntN(8) == 0
		}}}
		read := newOwners(t)
		s := newStory(seed, kernel, moody, read)
		for step := range 40 {
			s.goOn()
			if chance.IntN(10) == 0 {
				s.running.Distrust()
			}
			for tries := 0; ; tries++ {
				if _, err := s.running.Sync(t.Context()); err == nil {
					break
				}
				if tries == 1000 {
					t.Fatalf("seed %d: no sync succeeds", seed)
				}
			}
			read.agree(kernel, false)
			if t.Failed() {
				t.Fatalf("that was seed %d, step %d", seed, step)
			}
		}
		lost, refused = lost+read.lost, refused+moody.refused
	}
	if lost == 0 || refused == 0 {
		t.Errorf("%d elements were refused, and Services lost %d frontends: nothing was tested", refused, lost)
	}
}

// TestAReaderKnowsWhoseEachFrontendIsWhileLargeServicesWait for their turn, or are written in steps.
func TestAReaderKnowsWhoseEachFrontendIsWhileLargeServicesWait(t *testing.T) {
	ips, sizes := addrs("10.96.200.1", "10.96.200.2", "10.96.200.3"), []int{3, proxy.TurnWeight / 4, 2 * proxy.TurnWeight}
	lost := 0
	for seed := range uint64(3) {
		kernel, chance, read := &memoryKernel{}, rand.New(rand.NewPCG(seed, 3)), newOwners(t)
		p := starting(kernel, read)
		p.Apply(manyServices(3, 2))
		mustSync(t, p)
		for range 40 {
			name := model.ObjectName{Namespace: "tenant", Name: fmt.Sprint("s-", chance.IntN(4))}
			change := crowded(name.Name, ips[chance.IntN(len(ips))], sizes[chance.IntN(len(sizes))])
			service := change.Services[name]
			if service.ExternalIPs = addrs("192.0.2.1", "192.0.2.2")[:chance.IntN(3)]; chance.IntN(4) == 0 {
				change.Services[name] = nil
			}
			p.Apply(change)
			if p.ForbidLarge(); chance.IntN(2) == 0 {
				p.AllowLarge()
			}
			if chance.IntN(15) == 0 {
				p.Distrust()
			}
			mustSync(t, p)
			read.agree(kernel, p.Waits())
			kernel.batches = nil
		}
		syncAllTurns(t, p)
		if read.agree(kernel, false); t.Failed() {
			t.Fatalf("that was seed %d", seed)
		}
		lost += read.lost
	}
	if lost == 0 {
		t.Error("no Service lost a frontend while it waited: nothing was tested")
	}
}

// TestAFrontendThatMovesFromALargeServiceHasOneOwner while the large one waits for its turn, and when a Service that
// was refused gets the frontend.
func TestAFrontendThatMovesFromALargeServiceHasOneOwner(t *testing.T) {
	ip := netip.MustParseAddr("10.96.200.1")
	large, small := model.ObjectName{Namespace: "tenant", Name: "large"}, model.ObjectName{Namespace: "tenant", Name: "small"}
	for title, refuses := range map[string]bool{"at once": false, "after it was refused": true} {
		t.Run(title, func(t *testing.T) {
			kernel, read := &pickyKernel{refused: map[thing]bool{}}, newOwners(t)
			p := starting(kernel, read)
			p.Apply(crowded("large", ip, 3*proxy.TurnWeight))
			mustSync(t, p)
			frontend := model.Frontend{Addr: ip, Protocol: model.TCP, Port: 80}
			if refuses {
				p.Apply(crowded("small", netip.MustParseAddr("10.96.200.9"), 3))
				kernel.refused[thing{
					model.IPv4, ruleset.Services.Name, ruleset.Tuple{Addr: netip.MustParseAddr("10.96.200.9"), Proto: model.TCP, Port: 80},
				}] = true
				if report := mustSync(t, p); report.RefusedTotal != 1 {
					t.Fatalf("report %+v, want one Service refused", report)
				}
				clear(kernel.refused)
			}
			p.Apply(model.Change{Services: map[model.ObjectName]*model.Service{large: nil}})
			p.Apply(crowded("small", ip, 3))
			p.ForbidLarge()
			mustSync(t, p)
			if got := kernel.serves(t, ip.String()); read.byFrontend[frontend] != small || got != 3 || !p.Waits() {
				t.Errorf("%s is of %v, with %d endpoints; want it of %s with 3, while the other one waits", ip, read.byFrontend[frontend], got, small)
			}
			read.agree(&kernel.memoryKernel, true)
		})
	}
}
