package proxy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// restricted returns a Service with a number of source ranges of each family, beginning with the given one.
func restricted(name string, number byte, first, count int) *model.Service {
	service := nameService(name, netip.AddrFrom4([4]byte{10, 96, 1, number}).String())
	service.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, number})}
	for at := first; at < first+count; at++ {
		addr := netip.AddrFrom4([4]byte{20, byte(at >> 8), byte(at), 0})
		service.SourceRanges = append(service.SourceRanges, netip.PrefixFrom(addr, 24))
	}
	return service
}

// TestAChangedListIsWrittenBesideTheOldOne, which the sweep removes. Only a complete sync, which writes everything,
// writes a list that is there already. In the end the tables are those of a fresh start.
func TestAChangedListIsWrittenBesideTheOldOne(t *testing.T) {
	kernel := newRealKernel(t)
	p := starting(kernel)
	everything := oneService(restricted("one", 1, 0, 150), answeredBy("one", 1)).
		Then(oneService(restricted("two", 2, 0, 20), answeredBy("two", 2)))
	p.Apply(everything)
	mustSync(t, p)
	for _, step := range []struct {
		title  string
		change model.Change
		added  int // ranges
		gone   int // with the sweep
	}{
		{"a few ranges go", oneService(restricted("one", 1, 5, 145), nil), 145, 150},
		{"all are others", oneService(restricted("one", 1, 1000, 145), nil), 145, 145},
		{"they are those of another Service", oneService(restricted("one", 1, 0, 20), nil), 0, 145},
		{"the other Service has them still", without("one"), 0, 0},
		{"a Service with many comes", oneService(restricted("one", 1, 0, 150), nil), 150, 0},
		{"nothing changes while no proxy runs", model.Change{}, 170, 0},
		{"all go while no proxy runs", without("one"), 20, 0},
		{"it comes again while no proxy runs", oneService(restricted("one", 1, 0, 150), nil), 170, 0},
	} {
		if strings.HasSuffix(step.title, "while no proxy runs") {
			p = starting(kernel)
			p.Apply(everything)
		}
		before := len(kernel.memory.batches)
		everything = everything.Then(step.change)
		p.Apply(step.change)
		mustSync(t, p)
		written := map[ruleset.Verb]int{}
		for _, batch := range kernel.memory.batches[before:] {
			for _, op := range batch.Ops {
				if object, ok := op.Object.(ruleset.ElementsObject); ok && object.Set.Name == ruleset.Sources.Name {
					written[op.Verb] += len(slices.Collect(object.Elements))
				}
			}
		}
		if written[ruleset.Add] != step.added || written[ruleset.Delete] != step.gone {
			t.Errorf("%s: %d ranges are added and %d deleted, want %d and %d",
				step.title, written[ruleset.Add], written[ruleset.Delete], step.added, step.gone)
		}
		likeFreshStart(t, &kernel.memory, everything)
		kernel.agree(t)
	}
}
