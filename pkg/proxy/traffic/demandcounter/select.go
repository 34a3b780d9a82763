package demandcounter

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxFrontends limits the counted frontends: the kernel takes 100 ms to report that many.
const maxFrontends = 10_000

// selectFrontends returns the frontends to count, the Service of each, and the number of Services that exceed the
// limits. Namespaces get equal shares, and within a namespace the Services with the fewest frontends come first. All
// nodes select the same frontends, because all see the same Services.
func selectFrontends(services map[model.ObjectName][]model.Frontend) (chosen map[model.Frontend]model.ObjectName, skipped int) {
	// Both frontends and Services are limited. The weight of a Service is the larger of its two shares.
	weight := func(name model.ObjectName) int { return max(len(services[name]), maxFrontends/demandapi.MaxServices) }
	names := slices.SortedFunc(maps.Keys(services), func(a, b model.ObjectName) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), a.Compare(b))
	})
	share := func(name model.ObjectName) fair.Share {
		return fair.Share{Namespace: name.Namespace, Weight: weight(name)}
	}
	chosen = map[model.Frontend]model.ObjectName{}
	count := 0
	for _, name := range fair.Order(names, share) {
		frontends := services[name]
		if count == demandapi.MaxServices || len(chosen)+len(frontends) > maxFrontends {
			skipped++
			continue
		}
		count++
		for _, frontend := range frontends {
			chosen[frontend] = name
		}
	}
	return chosen, skipped
}
