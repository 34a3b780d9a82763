package rules_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// FuzzReviewService reviews anything that can be decoded. It must end, and every result must be printable.
func FuzzReviewService(f *testing.F) {
	for _, c := range rulecases.Cases(f) {
		old, err := json.Marshal(c.Old)
		if err != nil {
			f.Fatal(err)
		}
		object, err := json.Marshal(c.Object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(old, object)
	}
	f.Add([]byte("null"), []byte(`{"metadata":{"labels":null,"annotations":{"":""}},"spec":{"trafficDistribution":""}}`))
	nodes := rules.NewNodeLabels()
	for name, zone := range map[string]string{"a": "zone-a", "b": "zone-b"} {
		nodes.Put(name, map[string]string{"topology.kubernetes.io/zone": zone, "rack": "1"})
	}
	nodes.Put("c", map[string]string{"topology.kubernetes.io/zone": "zone-a", "rack": "2"})
	f.Fuzz(func(t *testing.T, old, object []byte) {
		service := new(rules.Service)
		if json.Unmarshal(object, service) != nil {
			return
		}
		oldService := new(rules.Service)
		if json.Unmarshal(old, oldService) != nil {
			oldService = nil
		}
		facts := rules.Facts{Nodes: nodes, Services: noServices{}}
		for _, settings := range []*rules.Settings{nil, {Strict: true, ProxyName: "vicinity"}} {
			checkMessages(t, rules.ReviewService(oldService, service, facts, settings))
			if same := rules.ReviewService(service, service, facts, settings); len(same.Denied)+len(same.Warned) > 0 {
				t.Errorf("unchanged %s is reported: %v", object, same)
			}
			checkMessages(t, rules.ReviewNamespace(nil, &rules.Namespace{Metadata: service.Metadata}, settings))
		}
	})
}

// noServices is a cluster without Services.
type noServices struct{}

func (noServices) Names(string) (names []string, known bool) { return nil, true }

// checkMessages checks that messages are short, printable and sorted, and contain an existing rule.
func checkMessages(t *testing.T, result rules.Result) {
	t.Helper()
	const maxLength = 2000
	for _, violation := range slices.Concat(result.Denied, result.Warned) {
		message := violation.Message()
		if _, known := rules.RuleOf(violation.Rule); !known || !strings.HasSuffix(message, " ["+string(violation.Rule)+"]") {
			t.Errorf("%q contains no rule", message)
		}
		if len(message) > maxLength || !utf8.ValidString(message) || strings.ContainsAny(message, "\n\r\x00\x1b") {
			t.Errorf("%d bytes: %q", len(message), message)
		}
	}
	checkOrder(t, result)
}
