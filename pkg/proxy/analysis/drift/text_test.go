package drift

import (
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
)

// An API server that is not used must not be listed as reachable.
func TestTheTextNamesTheSourceOfTheState(t *testing.T) {
	for title, test := range map[string]struct {
		manifests, nodes string
		want             []string
	}{
		"an API server":             {"", "", []string{"API server      is reachable", "other nodes     no Service needs their labels"}},
		"an API server, and slices": {"", model.TopologyFromSlices, []string{"is reachable", "their labels come from TopologySlices\n"}},
		"manifests, which have them": {"/state", model.TopologyFromNodes, []string{
			"not used: the manifests are in /state", "from Nodes in the manifests",
		}},
	} {
		var text strings.Builder
		if err := Text(&text, &Node{Proxy: &status.Summary{Manifests: test.manifests, NodeTopology: test.nodes}}, ""); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: no %q in\n%s", title, want, text.String())
			}
		}
	}
}

// The time is that of the decisions, as in 'explain'. The node's last reply may be older.
func TestUnreachableSinceIsTheTimeOfTheDecision(t *testing.T) {
	since := time.Date(2026, time.March, 1, 12, 0, 5, 0, time.UTC)
	summary := &status.Summary{Node: "node-a", Reachability: &status.Reachability{Demotes: true, Unreachable: []status.UnreachableNode{
		{Node: "node-z", Since: since, LastReply: since.Add(-time.Hour)},
	}}}
	var text strings.Builder
	if err := Text(&text, &Node{Proxy: summary}, ""); err != nil {
		t.Fatal(err)
	}
	const want = "node node-z has not replied to node-a since 2026-03-01 12:00:05 UTC: its endpoints are tried last"
	sentences := summary.UnreachableSentences()
	if len(sentences) != 1 || sentences[0] != want || !strings.Contains(text.String(), "unreachable     "+want) {
		t.Errorf("got sentences %q, want only the one above, also in the text:\n%s", sentences, text.String())
	}
	for key, demotion := range summary.DemotionChange().Demotions {
		if key.Node != "node-z" || !demotion.Since.Equal(since) {
			t.Errorf("decisions count %s since %s", key.Node, demotion.Since)
		}
	}
}
