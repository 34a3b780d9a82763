package demandcounter

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxFrontends is how many frontends are counted at most: the kernel takes a tenth of a second to report that many.
const maxFrontends = 10_000

// selectFrontends returns the frontends to count, the Service of each, and how many Services there is no room for. Namespaces get
// equal parts of the room, and in each of them the Services with the fewest frontends come first. All nodes choose the
// same, because all see the same Services.
func selectFrontends(services map[model.ObjectName][]model.Frontend) (chosen map[model.Frontend]model.ObjectName, skipped int) {
	// There is room for a number of frontends and for a number of Services. What matters of each Service is the larger part.
	weight := func(name model.ObjectName) int { return max(len(services[name]), maxFrontends/demandapi.MaxServices) }
	names := slices.SortedFunc(maps.Keys(services), func(a, b model.ObjectName) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), a.Compare(b))
	})
	of := func(name model.ObjectName) fair.Share {
		return fair.Share{Namespace: name.Namespace, Weight: weight(name)}
	}
	chosen = map[model.Frontend]model.ObjectName{}
	count := 0
	for _, name := range fair.Order(names, of) {
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
