package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// measuredTotal is the total of a measured demand. It is large enough for 10,000 nodes to share a thousandth of it with
// little rounding, and so small that the amounts in a plan for 65,535 endpoints stay below 2^61 at any limit, and the
// sum of the squares below 2^60.
const measuredTotal = 1 << 30

// Measured returns a measured demand. The nodes of a zone share its total equally, also if only some of them connect.
// The unit does not matter; only proportions count. Nodes without the label are in the zone "". Zones without nodes are
// ignored. hasDemand reports whether the nodes in the node classes have any demand.
//
// The keys of the node classes must include the zone. The cost is proportional to the number of node classes.
func (c *NodeClasses) Measured(measured *model.Demand) (d Demand, hasDemand bool) {
	d = Demand{nodeClasses: c, zone: slices.Index(c.keys, policy.Zone), maxEffectiveNodes: measured.EffectiveNodes}
	nodeCounts := map[string]uint64{}
	for class := range c.classes {
		if count := c.classes[class].nodes; count > 0 {
			nodeCounts[d.zoneOfClass(int32(class))] += count
		}
	}
	if d.byZone = d.perNode(measured.Zones, nodeCounts); d.byZone == nil {
		return Demand{}, false
	}
	d.openByZone = d.perNode(measured.Open, nodeCounts)
	return d, true
}

// perNode returns the demand of each node by the number of its zone, given the totals and the numbers of nodes of the
// zones. It returns nil if no zone with nodes has any.
func (d Demand) perNode(zones map[string]uint32, nodeCounts map[string]uint64) []uint32 {
	total := uint64(0)
	for zone := range nodeCounts {
		total += uint64(zones[zone])
	}
	if total == 0 {
		return nil
	}
	byZone := make([]uint32, len(d.nodeClasses.interners[d.zone].strings)+1)
	for number := range byZone {
		zone := d.zoneName(int32(number))
		if count := nodeCounts[zone]; count > 0 {
			byZone[number] = uint32(mulDiv(measuredTotal, uint64(zones[zone]), total) / count)
		}
	}
	return byZone
}

// Zones returns the total demand of the nodes of each zone. If no node has any, each counts 1, as in a plan. The keys
// of the node classes must include the zone.
func (d Demand) Zones() map[string]uint64 {
	d.zone = slices.Index(d.nodeClasses.keys, policy.Zone)
	zones, nodeCounts, total := map[string]uint64{}, map[string]uint64{}, uint64(0)
	for class := range d.nodeClasses.classes {
		if sum := d.classSums(int32(class)); sum.nodes > 0 {
			zone := d.zoneOfClass(int32(class))
			zones[zone] += sum.demand
			nodeCounts[zone] += sum.nodes
			total += sum.demand
		}
	}
	if total == 0 {
		return nodeCounts
	}
	return zones
}

// zoneOfClass returns the zone of a node class.
func (d Demand) zoneOfClass(class int32) string {
	return d.zoneName(d.nodeClasses.classes[class].values[d.zone])
}

// zoneName returns the zone with a number.
func (d Demand) zoneName(number int32) string {
	if number == 0 {
		return ""
	}
	return d.nodeClasses.interners[d.zone].strings[number-1]
}
