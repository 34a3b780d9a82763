package balance

import (
	"math/bits"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NearProof suffices to prove, without a plan, that all connections of the cluster's own node stay at the first key,
// with one slot for each of its endpoints. That holds for most Services on most nodes, and has to be checked for all of
// them whenever a node is added or removed. The zero NearProof proves nothing.
type NearProof struct {
	value                   string // this node's value of the first key
	endpoints, allEndpoints uint64 // the number of endpoints with that value, and of all endpoints
}

// NearProof returns the proof for the share, or the zero NearProof. The keys must end with policy.AnyNode, so that the
// load is balanced between all nodes.
func (share *Share) NearProof() NearProof {
	last := len(share.KeyResults) - 1
	if share.Outcome != WithinLoadBound || share.Near != 0 || share.Rank != 0 || last == 0 || share.KeyResults[last].Key != policy.AnyNode {
		return NearProof{}
	}
	return NearProof{value: share.KeyResults[0].Value, endpoints: share.KeyResults[0].Endpoints, allEndpoints: share.Endpoints}
}

// StillHolds reports whether all connections stay at the first key with another demand, too: the demand of the nodes
// with its value is within the limit of the endpoints with it, by the arithmetic of Plan.Compute. False does not mean
// that connections go elsewhere. It is false for a demand of two kinds.
func (p NearProof) StillHolds(demand Demand, limit uint64) bool {
	if p.endpoints == 0 || demand.kinds() > 1 {
		return false
	}
	c := demand.nodeClasses
	near, all := uint64(0), uint64(0)
	isHostname, number := c.keys[0] == policy.Hostname, c.interners[0].numbers[p.value]
	for i := range c.classes {
		sum := demand.classSums(int32(i)).demand
		if all += sum; number > 0 && c.classes[i].values[0] == number {
			near += sum
		}
	}
	if selfNode, known := c.nodes[c.self]; isHostname && known {
		near = uint64(demand.demandOf(c.self, selfNode))
	}
	demandHigh, demandLow := bits.Mul64(100*p.allEndpoints, near)
	capacityHigh, capacityLow := bits.Mul64(limit*p.endpoints, all)
	return near > 0 && (demandHigh < capacityHigh || demandHigh == capacityHigh && demandLow <= capacityLow)
}
