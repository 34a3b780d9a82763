package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// cniNetworks returns the CNI configuration of a node with these pod address ranges. Each pod has a link of its own to
// the node (ptp), so that traffic between pods of one node is also routed and passes netfilter. With a bridge that
// would depend on br_netfilter.
func cniNetworks(pods ...netip.Prefix) (string, error) {
	type subnet struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	type destination struct {
		To string `json:"dst"`
	}
	var ranges [][]subnet
	for _, prefix := range pods {
		ranges = append(ranges, []subnet{{Subnet: prefix.Masked()}})
	}
	config := map[string]any{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []any{map[string]any{
			"type": "ptp",
			"ipam": map[string]any{
				"type":   "host-local",
				"ranges": ranges,
				"routes": []destination{{To: "0.0.0.0/0"}, {To: "::/0"}},
			},
		}},
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the CNI configuration: %w", err)
	}
	return string(text), nil
}
