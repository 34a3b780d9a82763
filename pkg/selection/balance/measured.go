package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// measuredOne is the total of a measured demand: fine enough for 10,000 nodes that share a thousandth. With it a plan
// for 65,535 endpoints stays below 2^61 at any limit, and the squares of all demands below 2^60.
const measuredOne = 1 << 30

// Measured is a demand as it was measured: the total of the nodes of each zone, and the part of single nodes in it; the
// other nodes of a zone share the rest equally. Numbers are parts of their sum, in any unit. The zone of nodes without
// the label is empty. It reports whether the nodes in the cells have any demand.
//
// The cells must have the zone among their keys. The zone's total decides: if its named nodes have more, or there are
// no others, they share it in proportion. Zones without nodes are dropped, and so are nodes that the cells do not have.
// The cost is proportional to the cells and named nodes.
func (c *Cells) Measured(zones, named map[string]uint32) (d Demand, any bool) {
	d = Demand{cells: c, named: map[string]uint32{}, most: measuredOne, zone: slices.Index(c.keys, policy.Zone)}
	sums := d.sumsOf(zones, named)
	all := uint64(0)
	for _, sum := range sums {
		all += sum.asks
	}
	if all == 0 {
		return Demand{}, false
	}
	for _, sum := range sums {
		sum.left = part(measuredOne, sum.asks, all)
		sum.whole = sum.left
	}
	for name, asks := range named {
		node, known := c.nodes[name]
		if !known {
			continue
		}
		sum := sums[d.zoneOf(node.cell)]
		own := part(sum.whole, uint64(asks), max(sum.shared(), 1))
		d.named[name] = uint32(own)
		sum.left -= own
	}
	d.others = make([]uint32, len(c.words[d.zone].words)+1)
	for number := range d.others {
		if sum := sums[d.nameOf(int32(number))]; sum != nil && sum.others > 0 {
			d.others[number] = uint32(sum.left / sum.others)
		}
	}
	d.sumNamed()
	return d, true
}

// zoneSum is a zone that has nodes.
type zoneSum struct {
	asks   uint64
	named  uint64 // what its named nodes are said to ask
	others uint64 // how many nodes are not named
	// whole is what it asks of measuredOne, and left is what its named nodes leave of that.
	whole, left uint64
}

// shared is what the parts of named nodes are parts of.
func (s *zoneSum) shared() uint64 {
	if s.others == 0 {
		return s.named
	}
	return max(s.asks, s.named)
}

// sumsOf returns the zones that have nodes.
func (d Demand) sumsOf(zones, named map[string]uint32) map[string]*zoneSum {
	sums := map[string]*zoneSum{}
	for cell := range d.cells.cells {
		if nodes := d.cells.cells[cell].nodes; nodes > 0 {
			zone := d.zoneOf(int32(cell))
			if sums[zone] == nil {
				sums[zone] = &zoneSum{asks: uint64(zones[zone])}
			}
			sums[zone].others += nodes
		}
	}
	for name, asks := range named {
		if node, known := d.cells.nodes[name]; known {
			sum := sums[d.zoneOf(node.cell)]
			sum.named += uint64(asks)
			sum.others--
		}
	}
	return sums
}

// Zones returns the total demand of the nodes of each zone; if no node has any, each counts 1, as in a plan. The cells
// must have the zone among their keys.
func (d Demand) Zones() map[string]uint64 {
	d.zone = slices.Index(d.cells.keys, policy.Zone)
	zones, nodes, all := map[string]uint64{}, map[string]uint64{}, uint64(0)
	for cell := range d.cells.cells {
		if sum := d.in(int32(cell)); sum.nodes > 0 {
			zone := d.zoneOf(int32(cell))
			zones[zone] += sum.demand
			nodes[zone] += sum.nodes
			all += sum.demand
		}
	}
	if all == 0 {
		return nodes
	}
	return zones
}

// zoneOf returns the zone of a cell.
func (d Demand) zoneOf(cell int32) string { return d.nameOf(d.cells.cells[cell].values[d.zone]) }

// nameOf returns the zone that has a number.
func (d Demand) nameOf(number int32) string {
	if number == 0 {
		return ""
	}
	return d.cells.words[d.zone].words[number-1]
}
