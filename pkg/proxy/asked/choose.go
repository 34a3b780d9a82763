package asked

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/demandpage"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxFrontends is how many frontends are counted at most: the kernel takes a tenth of a second to report that many.
const maxFrontends = 10_000

// choose returns the frontends to count, the Service of each, and how many Services there is no room for. Namespaces
// take turns, each with its Services in the order of names: so all nodes choose the same.
func choose(services map[model.ObjectName][]model.Frontend) (chosen map[model.Frontend]model.ObjectName, leftOut int) {
	chosen = map[model.Frontend]model.ObjectName{}
	count := 0
	for _, name := range inTurns(services) {
		frontends := services[name]
		if count == demandpage.MaxServices || len(chosen)+len(frontends) > maxFrontends {
			leftOut++
			continue
		}
		count++
		for _, frontend := range frontends {
			chosen[frontend] = name
		}
	}
	return chosen, leftOut
}

// inTurns returns the first Service of each Namespace, the second of each, and so on.
func inTurns(services map[model.ObjectName][]model.Frontend) []model.ObjectName {
	byNamespace := map[string][]model.ObjectName{}
	for name := range services {
		byNamespace[name.Namespace] = append(byNamespace[name.Namespace], name)
	}
	most := 0
	for _, names := range byNamespace {
		slices.SortFunc(names, model.ObjectName.Compare)
		most = max(most, len(names))
	}
	namespaces := slices.Sorted(maps.Keys(byNamespace))
	turns := make([]model.ObjectName, 0, len(services))
	for turn := range most {
		for _, namespace := range namespaces {
			if names := byNamespace[namespace]; turn < len(names) {
				turns = append(turns, names[turn])
			}
		}
	}
	return turns
}
