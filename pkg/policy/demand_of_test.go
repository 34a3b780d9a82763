package policy_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func TestDemandOfLabels(t *testing.T) {
	const controlPlane, noBalancers = "node-role.kubernetes.io/control-plane", "node.kubernetes.io/exclude-from-external-load-balancers"
	for name, c := range map[string]struct {
		labels map[string]string
		want   uint32
		valid  bool
	}{
		"no label":                       {nil, 1, true},
		"a number":                       {map[string]string{policy.DemandLabel: "16"}, 16, true},
		"zero":                           {map[string]string{policy.DemandLabel: "0"}, 0, true},
		"the maximum":                    {map[string]string{policy.DemandLabel: "100"}, 100, true},
		"too large counts as absent":     {map[string]string{policy.DemandLabel: "101"}, 1, false},
		"a word counts as absent":        {map[string]string{policy.DemandLabel: "much"}, 1, false},
		"a dedicated control plane node": {map[string]string{controlPlane: "", noBalancers: ""}, 0, true},
		"one that also runs pods":        {map[string]string{controlPlane: ""}, 1, true},
		"only without load balancers":    {map[string]string{noBalancers: ""}, 1, true},
		"the label takes precedence":     {map[string]string{controlPlane: "", noBalancers: "", policy.DemandLabel: "3"}, 3, true},
		"unless it is invalid":           {map[string]string{controlPlane: "", noBalancers: "", policy.DemandLabel: "-1"}, 0, false},
	} {
		if got, valid := policy.DemandOf(c.labels); got != c.want || valid != c.valid {
			t.Errorf("%s: %d, valid: %t; want %d, %t", name, got, valid, c.want, c.valid)
		}
	}
}
