package cluster

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTheNodesCacheIsConfiguredAsTheREADMEDescribes ensures that the lab tests the configuration that users are told to
// apply.
func TestTheNodesCacheIsConfiguredAsTheREADMEDescribes(t *testing.T) {
	readme, err := os.ReadFile("../../../manifests/dns/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, documented, found := strings.Cut(string(readme), "```\n   cluster.local:53 {")
	documented, _, ended := strings.Cut(documented, "```")
	if !found || !ended {
		t.Fatal("the README has no block for cluster.local")
	}
	documented = strings.NewReplacer(
		"__PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__", "169.254.20.10",
		"__PILLAR__LOCAL__DNS__:8080", "169.254.20.10:18080", // pods with host networking use 8080
		"__PILLAR__CLUSTER__DNS__", "10.96.0.10",
	).Replace(documented)
	config, _, _ := strings.Cut(nodeDNSText(), "\n---\n")
	var object configMap
	if err := yaml.Unmarshal([]byte(config), &object); err != nil {
		t.Fatal(err)
	}
	_, actual, found := strings.Cut(object.Data["Corefile"], "cluster.local:53 {")
	actual, _, ended = strings.Cut(actual, "\n.:53 {")
	if !found || !ended {
		t.Fatal("the Corefile has no block for cluster.local")
	}
	if want, got := strings.Fields(documented), strings.Fields(actual); strings.Join(want, " ") != strings.Join(got, " ") {
		t.Errorf("the lab's block is\n%s\nand the README's\n%s", actual, documented)
	}
}
