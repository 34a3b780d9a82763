package explain_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// fullPort returns the report of a port with nearly every field set.
func fullPort() explain.PortReport {
	external := []string{"198.51.100.7:80", "192.0.2.10:80", "*:30080"}
	return explain.PortReport{
		Node: "node-a1", Service: "default/web", Port: "http", Number: 80, Protocol: "TCP", Family: "IPv4",
		Frontends: []explain.Frontend{
			{Address: "10.96.0.10:80", Kind: "ClusterIP"},
			{Address: "198.51.100.7:80", Kind: "LoadBalancerIP"},
			{Address: "192.0.2.10:80", Kind: "ExternalIP"},
			{Address: "*:30080", Kind: "NodePort"},
		},
		LostFrontends: []explain.LostFrontend{{
			Frontend: explain.Frontend{Address: "198.51.100.8:80", Kind: "ExternalIP"}, Owner: "default/older",
			Reason: "OwnerIsOlder", Message: "198.51.100.8:80/TCP belongs to default/older.",
		}},
		Outcome: "balance", Message: "New connections are spread at random over 2 endpoints.",
		Traffic: []explain.Traffic{
			{
				To: "ClusterIP", From: "everybody", Frontends: []string{"10.96.0.10:80"}, Choice: "cluster",
				Outcome: "balance", Message: "New connections are spread at random over 2 endpoints.",
			},
			{
				To: "external", From: "outside", Frontends: external, Choice: "local", Source: "kept",
				Outcome: "balance", Message: "New connections from outside go to one endpoint on this node.",
			},
			{
				To: "external", From: "inside", Frontends: external, Choice: "cluster", Source: "keptForPods",
				Outcome: "balance", Message: "New connections from inside are spread at random over 2 endpoints.",
			},
		},
		Cluster: explain.Choice{
			Endpoints: []string{"10.244.1.5:8080", "10.244.1.16:8080"},
			Tier:      "topology.kubernetes.io/zone", Reason: "Matched", Message: "The ones that share this node's zone are used.",
		},
		Local: &explain.Choice{Endpoints: []string{"10.244.1.5:8080"}, Tier: "node", Reason: "OnNode", Message: "The ones here are used."},
		Excluded: []explain.Excluded{
			{Endpoint: "10.244.2.5:8080", Reason: "OtherValue", Message: "The endpoint's zone is another one."},
			{Endpoint: "10.244.12.15:8080", Reason: "NotReady", Message: "The endpoint is not ready."},
		},
		AllowedSources:  []string{"203.0.113.0/24", "198.51.100.7/32"},
		HealthCheck:     &explain.HealthCheck{NodePort: 32000, LocalEndpoints: 1},
		AffinitySeconds: 10800,
		Warnings:        []string{"198.51.100.8:80/TCP belongs to default/older.", "Another warning."},
	}
}

func emptyPort() explain.PortReport {
	const refused = "New connections are refused at once."
	return explain.PortReport{
		Service: "kube-system/dns", Number: 53, Protocol: "UDP", Family: "IPv6",
		Frontends: []explain.Frontend{{Address: "[fd00:10:96::a]:53", Kind: "ClusterIP"}},
		Outcome:   "refuse", Message: refused,
		Traffic: []explain.Traffic{{
			To: "ClusterIP", From: "everybody", Frontends: []string{"[fd00:10:96::a]:53"}, Choice: "cluster", Outcome: "refuse", Message: refused,
		}},
		Cluster: explain.Choice{Endpoints: []string{}, Reason: "NoEndpoints", Message: "No endpoint is ready."},
	}
}

// splitPort returns a port with a load bound.
func splitPort() explain.PortReport {
	port := emptyPort()
	port.Outcome, port.Message = "balance", "New connections are spread at random over 2 endpoints."
	port.Traffic[0].Outcome, port.Traffic[0].Message = "balance", port.Message
	port.Cluster = explain.Choice{
		Endpoints: []string{"10.244.1.5:8080", "10.244.1.16:8080"}, Tier: "topology.kubernetes.io/zone",
		Reason: "Spillover", Message: "75 % of this node's connections stay in its zone.",
		Shares: []explain.Share{
			{Key: "topology.kubernetes.io/zone", Value: "zone-a", Share: 0.75, Endpoints: 1, Used: 1},
			{Key: "*", Share: 0.25, Endpoints: 3, Used: 2},
		},
		Slots: map[string]int{"10.244.1.5:8080": 28, "10.244.1.16:8080": 4},
	}
	port.Load = &explain.Load{
		Message: "Without the load bound, the expected load of one endpoint would be higher.", Demand: "Each Node counts as one client.",
	}
	return port
}

// lostPort returns a port whose frontends belong to another Service.
func lostPort() explain.PortReport {
	port := emptyPort()
	port.Frontends, port.Traffic = nil, nil
	port.Outcome, port.Message = "lost", "This port cannot be reached."
	port.Warnings = []string{"[fd00:10:96::a]:53/UDP belongs to default/older."}
	return port
}

func TestTextFormat(t *testing.T) {
	tests := map[string][]explain.PortReport{
		"everything":   {fullPort()},
		"no-endpoints": {emptyPort()},
		"lost":         {lostPort()},
		"split":        {splitPort()},
		"two-ports":    {emptyPort(), fullPort()},
		"nothing":      nil,
	}
	for name, ports := range tests {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := write("text")(&got, ports); err != nil {
				t.Fatal(err)
			}
			golden.File(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// brokenPipe is a writer that always fails.
type brokenPipe struct{}

var errBroken = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestWritersReportErrors(t *testing.T) {
	for name, write := range writers {
		if err := write(brokenPipe{}, []explain.PortReport{fullPort()}); !errors.Is(err, errBroken) {
			t.Errorf("%s: got error %v, want one that wraps %v", name, err, errBroken)
		}
	}
}
