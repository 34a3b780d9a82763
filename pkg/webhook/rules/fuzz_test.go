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
		now := new(rules.Service)
		if json.Unmarshal(object, now) != nil {
			return
		}
		before := new(rules.Service)
		if json.Unmarshal(old, before) != nil {
			before = nil
		}
		facts := rules.Facts{Nodes: nodes, Services: noServices{}}
		for _, settings := range []*rules.Settings{nil, {Strict: true, ProxyName: "vicinity"}} {
			checkShown(t, rules.ReviewService(before, now, facts, settings))
			if same := rules.ReviewService(now, now, facts, settings); len(same.Denied)+len(same.Warned) > 0 {
				t.Errorf("unchanged %s is reported: %v", object, same)
			}
			checkShown(t, rules.ReviewNamespace(nil, &rules.Namespace{Metadata: now.Metadata}, settings))
		}
	})
}

// noServices is a cluster without Services.
type noServices struct{}

func (noServices) Names(string) (names []string, known bool) { return nil, true }

// checkShown checks that messages are short, printable and sorted, and contain an existing rule.
func checkShown(t *testing.T, result rules.Result) {
	t.Helper()
	const most = 2000
	for _, violation := range slices.Concat(result.Denied, result.Warned) {
		message := violation.Message()
		if _, known := rules.RuleOf(violation.Rule); !known || !strings.HasSuffix(message, " ["+string(violation.Rule)+"]") {
			t.Errorf("%q contains no rule", message)
		}
		if len(message) > most || !utf8.ValidString(message) || strings.ContainsAny(message, "\n\r\x00\x1b") {
			t.Errorf("%d bytes: %q", len(message), message)
		}
	}
	checkOrder(t, result)
}
