package selection

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func TestTierOf(t *testing.T) {
	nodes := map[string]string{"node-1": "zone=a region=r rack=1", "node-2": "zone=a region=r rack=2", "node-3": "zone=b region=r"}
	for name, test := range map[string]struct {
		keys, endpoints, want string
	}{
		"the first key that matches each endpoint": {
			"hostname zone region *", "1* 2@node-2 3@node-3 4", "hostname zone region *",
		},
		"hard keys":                  {"hostname zone", "1* 2@node-2 3@node-3", "hostname zone none"},
		"an unready endpoint":        {"hostname zone *", "1!* 2@node-2 3@node-3", "hostname zone *"},
		"a custom key":               {"rack zone", "1* 2@node-2", "rack zone"},
		"hints for zones":            {"", "1*/a(a) 2@node-2/a(a) 3@node-3/b(b)", "hint hint none"},
		"hints for nodes":            {"", "1*[node-1] 2@node-2[node-2]", "hint none"},
		"hints that are ignored":     {"", "1*(a) 2@node-2", "none none"},
		"neither keys nor hints":     {"", "1* 3@node-3", "none none"},
		"keys and hints":             {"zone *", "1*/a(a) 3@node-3/b(b)", "zone *"},
		"an endpoint without a node": {"zone *", "9", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			service := withKeys(model.Service{}, test.keys)
			decision := Decision{Viewpoint: viewFrom(nodes), Service: &service, Endpoints: parseEndpoints(t, test.endpoints)}
			decision.Selection = Select(&service, false, decision.Endpoints, decision.Viewpoint)
			var got []string
			for i := range decision.Endpoints {
				got = append(got, decision.TierOf(&decision.Endpoints[i]))
			}
			var want []string
			for word := range strings.FieldsSeq(test.want) {
				if word != TierHint && word != TierNone {
					word = string(parseKeys(word)[0])
				}
				want = append(want, word)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
