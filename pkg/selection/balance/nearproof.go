package balance

import (
	"math/bits"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NearProof suffices to prove, without a plan, that all connections of the cluster's own node stay at the first key,
// with one slot for each of its endpoints. That holds for most Services on most nodes, and has to be checked for all of
// them whenever a node is added or removed. The zero NearProof proves nothing.
type NearProof struct {
	value                string // of the first key
	endpoints, ofCluster uint64 // that have it, and all
}

// NearProof returns the proof for the share, or the zero NearProof. The keys must end with policy.AnyNode, so that the
// load is balanced between all nodes.
func (h *Share) NearProof() NearProof {
	last := len(h.KeyResults) - 1
	if h.Outcome != WithinLoadBound || h.Near != 0 || h.Rank != 0 || last == 0 || h.KeyResults[last].Key != policy.AnyNode {
		return NearProof{}
	}
	return NearProof{value: h.KeyResults[0].Value, endpoints: h.KeyResults[0].Endpoints, ofCluster: h.Endpoints}
}

// StillHolds reports whether all connections stay there with another demand, too: the demand of the group's nodes is
// within the limit of its endpoints, by the arithmetic of Plan.Compute. False does not mean that connections go
// elsewhere.
func (k NearProof) StillHolds(demand Demand, limit uint64) bool {
	if k.endpoints == 0 {
		return false
	}
	c := demand.cells
	near, all := uint64(0), uint64(0)
	isHostname, number := c.keys[0] == policy.Hostname, c.interners[0].numbers[k.value]
	for i := range c.cells {
		sum := demand.in(int32(i)).demand
		if all += sum; number > 0 && c.cells[i].values[0] == number {
			near += sum
		}
	}
	if own, known := c.nodes[c.self]; isHostname && known {
		near = uint64(demand.of(c.self, own))
	}
	askedHigh, asked := bits.Mul64(100*k.ofCluster, near)
	roomHigh, room := bits.Mul64(limit*k.endpoints, all)
	return near > 0 && (askedHigh < roomHigh || askedHigh == roomHigh && asked <= room)
}
