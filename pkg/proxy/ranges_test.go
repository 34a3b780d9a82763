package proxy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// restricted returns a Service with so many source ranges of each family, beginning with the given one.
func restricted(name string, number byte, first, count int) *model.Service {
	service := nameService(name, netip.AddrFrom4([4]byte{10, 96, 1, number}).String())
	service.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, number})}
	for at := first; at < first+count; at++ {
		addr := netip.AddrFrom4([4]byte{20, byte(at >> 8), byte(at), 0})
		service.SourceRanges = append(service.SourceRanges, netip.PrefixFrom(addr, 24))
	}
	return service
}

// TestManyRangesAreReplacedAtOnce, where one by one they would take the kernel the square of their number; few are
// changed as they are. Both leave what a fresh start would.
func TestManyRangesAreReplacedAtOnce(t *testing.T) {
	kernel := newRealKernel(t)
	p := starting(kernel)
	everything := oneService(restricted("one", 1, 0, 150), answeredBy("one", 1)).
		Then(oneService(restricted("two", 2, 0, 20), answeredBy("two", 2)))
	p.Apply(everything)
	mustSync(t, p)
	for _, step := range []struct {
		title    string
		change   model.Change
		replaced bool
	}{
		{"a few ranges go", oneService(restricted("one", 1, 5, 145), nil), false},
		{"all are others", oneService(restricted("one", 1, 1000, 145), nil), true},
		{"all go with the Service", without("one"), true},
		{"a Service with as many comes", oneService(restricted("one", 1, 0, 150), nil), false},
		{"all go while no proxy runs", without("one"), true},
		{"it comes again while no proxy runs", oneService(restricted("one", 1, 0, 150), nil), false},
	} {
		if strings.HasSuffix(step.title, "while no proxy runs") {
			p = starting(kernel)
			p.Apply(everything)
		}
		before := len(kernel.memory.batches)
		everything = everything.Then(step.change)
		p.Apply(step.change)
		mustSync(t, p)
		replaced := false
		for _, batch := range kernel.memory.batches[before:] {
			for _, op := range batch.Ops {
				set, ok := op.Object.(ruleset.SetObject)
				replaced = replaced || ok && op.Verb == ruleset.Delete && set.Set.Name == ruleset.AllowedSources.Name
			}
		}
		if replaced != step.replaced {
			t.Errorf("%s: the set is made anew: %v, want %v", step.title, replaced, step.replaced)
		}
		likeFreshStart(t, &kernel.memory, everything)
		kernel.agree(t)
	}
}
