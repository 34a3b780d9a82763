package forecast

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// slotSharesOn returns the share of the slots that each endpoint has in explain's report for a node, by port number and
// endpoint.
func slotSharesOn(t *testing.T, c Cluster, node string, service model.ObjectName) map[string]float64 {
	t.Helper()
	objects := convert.Objects{Nodes: c.nodes, Services: c.services}
	for _, service := range c.services {
		objects.Slices = append(objects.Slices, c.slicesOf[nameOf(service)]...)
	}
	cluster := model.NewCluster(node)
	cluster.Apply(changeOf(t, objects))
	shares := map[string]float64{}
	for _, port := range (explain.Clients{}).Ports(cluster, explain.Query{Service: service}) {
		choice := &port.Cluster
		if port.Local != nil {
			choice = port.Local
		}
		totalSlots := 0
		for _, slots := range choice.Slots {
			totalSlots += slots
		}
		for endpoint, slots := range choice.Slots {
			shares[fmt.Sprint(port.Number, " ", endpoint)] = float64(slots) / float64(totalSlots)
		}
	}
	return shares
}

// TestEverySuggestionIsProven: explain agrees about which endpoints are used, and after each suggestion the endpoint is
// used in explain.
func TestEverySuggestionIsProven(t *testing.T) {
	suggested, combined := 0, 0
	for seed := range uint64(400) {
		generator := newGenerator(seed)
		objects := generator.cluster()
		cluster := NewCluster(objects, convert.View{})
		for _, service := range objects.Services {
			name := nameOf(service)
			for _, node := range objects.Nodes {
				for i := range objects.Nodes {
					explanations, _, err := cluster.ExplainEndpoint(node.Name, explain.Query{Service: name}, objects.Nodes[i].Name, time.Now())
					if err != nil {
						continue // no endpoint there, or no decision
					}
					used := slotSharesOn(t, cluster, node.Name, name)
					for _, explanation := range explanations {
						key := fmt.Sprint(explanation.Number, " ", explanation.Endpoint)
						if (explanation.Share > 0) != (used[key] > 0) {
							t.Fatalf("seed %d: %+v, explain: %v", seed, explanation, used)
						}
						if service.Annotations["vicinity.dev/max-load"] == "" && math.Abs(explanation.Share-used[key]) > 1e-9 {
							t.Fatalf("seed %d: share %v, explain: %v", seed, explanation.Share, used[key])
						}
						if explanation.Share == 0 && len(explanation.Suggestions) == 0 && explanation.Reason != "ShareBelowOneSlot" {
							t.Errorf("seed %d: no suggestion: %+v", seed, explanation)
						}
						for _, suggestion := range explanation.Suggestions {
							suggested++
							if len(suggestion.Changes) > 1 {
								combined++
							}
							var changes []Change
							for _, step := range suggestion.steps {
								changes = append(changes, step.change)
							}
							after, err := cluster.Apply(changes)
							if err != nil {
								t.Fatal(err)
							}
							if sharesAfter := slotSharesOn(t, after, node.Name, name); sharesAfter[key] == 0 {
								t.Fatalf("seed %d: %+v, but after the changes explain has %v", seed, explanation, sharesAfter)
							}
						}
					}
				}
			}
		}
	}
	if suggested < 5000 || combined < 500 {
		t.Errorf("only %d suggestions, %d of them with several changes", suggested, combined)
	}
}

func TestAnUnknownTargetListsTheEndpoints(t *testing.T) {
	objects := newGenerator(5).cluster()
	cluster := NewCluster(objects, convert.View{})
	for i := range objects.Services {
		name := nameOf(objects.Services[i])
		_, _, err := cluster.ExplainEndpoint("node-0", explain.Query{Service: name}, "10.9.9.9", time.Now())
		if err == nil || !strings.Contains(err.Error(), "is not an endpoint of") && !strings.Contains(err.Error(), "leads to no endpoints") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err := cluster.ExplainEndpoint("node-0", explain.Query{Service: model.ObjectName{Namespace: "shop",
		Name: "wep-0"}}, "10.9.9.9", time.Now())
	if err == nil || !strings.Contains(err.Error(), "did you mean shop/web-0?") {
		t.Error(err)
	}
}
