package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestAFamilyWithoutEndpointsRefusesWhileTheOtherOneServes checks that each family has endpoints of its own.
func TestAFamilyWithoutEndpointsRefusesWhileTheOtherOneServes(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	allPaths := byFamily(web.paths(r.nodes[0], allKinds...))
	for desc, edits := range map[string][]func(*model.Service){
		"both policies Cluster": {web.withEverything},
		"both policies Local":   {web.withEverything, internalLocal, externalLocal},
		"session affinity":      {web.withEverything, affinity(affinityHour)},
	} {
		for i, family := range model.Families {
			other := model.Families[1-i]
			one := endpoints(r.near)
			for _, slice := range one.Slices {
				if slice.Family == other {
					slice.Endpoints = nil
				}
			}
			r.apply(service(edits...).Merge(one))
			expect(t, desc+", "+family.String()+" has an endpoint", r.clients(), allPaths[family], servedBy("near"))
			expect(t, desc+", "+other.String()+" has none", r.clients(), allPaths[other], refused)
		}
	}
}

func byFamily(all []path) map[model.Family][]path {
	found := map[model.Family][]path{}
	for _, p := range all {
		found[p.family()] = append(found[p.family()], p)
	}
	return found
}
