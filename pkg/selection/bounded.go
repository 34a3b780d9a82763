package selection

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// plans pools plans, because a plan reuses its memory.
var plans = sync.Pool{New: func() any { return new(balance.Plan) }}

// selectBounded keeps as many connections near as the Service's load bound allows, and spreads the others. While some
// nodes are unknown there is no plan: the first key wins, as without a bound.
func selectBounded(service *model.Service, endpoints []model.PortEndpoint, viewpoint NodeView) Choice {
	keys := service.Topology.Keys
	byKeys := func(endpoints []model.PortEndpoint) Choice { return selectByKeys(keys, endpoints, viewpoint) }
	demand, known := viewpoint.demandOf(service)
	if !known {
		choice := withDemotions(endpoints, byKeys)
		if len(choice.Endpoints) > 0 && choice.Endpoints[0].Demotion == nil {
			choice.Reason.Code = NodesUnknown
		}
		return choice
	}
	clusterWide := clusterWideView(endpoints)
	record, share := viewpoint.share(service, clusterWide, demand)
	record.slots, record.nearProof, record.source = share.Slots(service.Name, record.hashes), share.NearProof(), share.Source
	if share.Outcome == balance.NoEndpoint {
		choice := byKeys(endpoints) // for its reason
		choice.record = &record
		return choice
	}
	for _, result := range share.KeyResults {
		record.sentByKey = append(record.sentByKey, uint32(result.Fraction/(balance.One/fullShare)))
	}
	choice := Choice{Share: &share, Reason: reasonOf(&share, service.Topology.MaxLoad), Tier: tierOf(&share), record: &record}
	choice.fill(withoutUnreachable(record.slots, endpoints), endpoints)
	if len(choice.Endpoints) == 0 {
		choice.fillReachable(record.slots, endpoints, byKeys)
	}
	choice.markDemotedOnly()
	if service.AffinityTimeout > 0 {
		chosenUnreachable := choice.Endpoints[0].IsUnreachable()
		choice.StickyOnly = filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool {
			return hasRank(endpoint, share.Rank) && viewpoint.allows(keys, endpoint) && endpoint.IsUnreachable() == chosenUnreachable
		})
	}
	return choice
}

// withoutUnreachable returns the slots without those of endpoints on unreachable nodes. The others keep their
// proportions.
func withoutUnreachable(slots []int, endpoints []model.PortEndpoint) []int {
	if !slices.ContainsFunc(endpoints, isUnreachable) {
		return slots
	}
	remaining := slices.Clone(slots)
	for i := range remaining {
		if endpoints[i].IsUnreachable() {
			remaining[i] = 0
		}
	}
	return remaining
}

// fillReachable is for a plan that sends all connections to unreachable nodes. It chooses among the endpoints on other
// nodes by the keys, without a bound. If they match none, it applies the plan as it is.
func (c *Choice) fillReachable(slots []int, endpoints []model.PortEndpoint, byKeys func([]model.PortEndpoint) Choice) {
	others := filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool { return !endpoint.IsUnreachable() })
	if choice := withDemotions(others, byKeys); len(choice.Endpoints) > 0 {
		c.Endpoints, c.Reason, c.Tier = choice.Endpoints, choice.Reason, choice.Tier
		return
	}
	c.fill(slots, endpoints)
}

// hasRank reports whether an endpoint is usable and has the given cluster-wide rank.
func hasRank(endpoint *model.PortEndpoint, want model.Rank) bool {
	rank, usable := endpoint.ClusterWideRank()
	return usable && rank == want
}

// planRecord has the input and the result of a plan for one port: enough to detect whether a change of the demand makes
// a difference.
type planRecord struct {
	endpointClasses *balance.EndpointClasses
	hashes          []uint32 // of the endpoints
	slots           []int    // of each endpoint
	sentByKey       []uint32 // connections to the endpoints of each key, in units of 1/fullShare; nil if this node refuses
	nearProof       balance.NearProof
	source          balance.Source // of the demand
}

func newPlanRecord(service *model.Service, endpoints []model.PortEndpoint, viewpoint NodeView) planRecord {
	return planRecord{
		endpointClasses: balance.NewEndpointClasses(service.Topology.Keys, endpoints, viewpoint.ValueOf), hashes: balance.Hashes(endpoints),
	}
}

// share plans for all nodes unless the plan is cached, and returns this node's share and the record of the plan.
func (v NodeView) share(service *model.Service, endpoints []model.PortEndpoint, demand balance.Demand) (planRecord, balance.Share) {
	if v.plan != nil {
		return v.plan.share(service, endpoints, demand, v)
	}
	record := newPlanRecord(service, endpoints, v)
	return record, record.plan(service, demand, v.Node)
}

// plan plans for all nodes, and returns the share of one node.
func (p *planRecord) plan(service *model.Service, demand balance.Demand, node model.Node) balance.Share {
	plan := plans.Get().(*balance.Plan)
	defer plans.Put(plan)
	plan.Compute(demand, p.endpointClasses, int(service.Topology.MaxLoad))
	return plan.Share(node.Name, node.Labels)
}

func (v NodeView) demandOf(service *model.Service) (balance.Demand, bool) {
	if v.Demand == nil {
		return balance.Demand{}, false
	}
	return v.Demand(service)
}

// fill adds the endpoints that have slots.
func (c *Choice) fill(slots []int, endpoints []model.PortEndpoint) {
	uneven := false
	for i, count := range slots {
		if count > 0 {
			c.Endpoints, c.Slots = append(c.Endpoints, endpoints[i]), append(c.Slots, count)
			uneven = uneven || count > 1
		}
	}
	if !uneven {
		c.Slots = nil
	}
}

// tierOf returns the key at which most connections stay, or the first of several such keys.
func tierOf(share *balance.Share) string {
	best := 0
	for i := range share.KeyResults {
		if share.KeyResults[i].Fraction > share.KeyResults[best].Fraction {
			best = i
		}
	}
	return string(share.KeyResults[best].Key)
}

// Load has the numbers of a Reason about a load-bounded Service. Loads are per mille of the mean.
type Load struct {
	// NearShare is the fraction of this node's connections that stay at the reason's key. SpillShare is the fraction that
	// goes elsewhere, mostly to Next: a key, with this node's value of it.
	NearShare, SpillShare Fraction
	Next, NextValue       string
	// HasNoLabel is set if this node has no label of the reason's key.
	HasNoLabel bool
	// Endpoints (of AllEndpoints) and Demand (of AllDemand) are those with this node's value of the reason's key. Measured
	// demand is in an arbitrary unit.
	Endpoints, AllEndpoints, Demand, AllDemand uint64
	IsMeasured                                 bool
	// Unbounded is the expected load of each of these endpoints if there were no load bound. Busiest is the expected load
	// of the busiest of them, and Limit is the load bound in percent.
	Unbounded, Busiest, Limit uint64
}

// Fraction is a part of a node's connections, in units of 1/balance.One.
type Fraction uint64

// FractionOf converts a ratio between 0 and 1.
func FractionOf(ratio float64) Fraction { return Fraction(ratio * balance.One) }

// Ratio returns the fraction as a number between 0 and 1.
func (f Fraction) Ratio() float64 { return float64(f) / balance.One }

// String formats the fraction in percent. It never rounds to 0 % or 100 %.
func (f Fraction) String() string {
	percent := f.Ratio() * 100
	switch {
	case f == 0 || f == balance.One:
		return strconv.Itoa(int(percent)) + " %"
	case percent < 0.1:
		return "less than 0.1 %"
	case percent > 99.9:
		return "more than 99.9 %"
	case percent >= 10 && percent <= 90:
		return fmt.Sprintf("%.0f %%", percent)
	}
	return fmt.Sprintf("%.1f %%", percent)
}

// outcomeCodes maps outcomes to reason codes.
var outcomeCodes = map[balance.Outcome]Code{
	balance.WithinLoadBound:   WithinLoadBound,
	balance.Spillover:         Spillover,
	balance.NoNearEndpoints:   NoNearEndpoints,
	balance.LoadBoundExceeded: LoadBoundExceeded,
}

func reasonOf(share *balance.Share, limit uint64) Reason {
	near, next := &share.KeyResults[share.Near], &share.KeyResults[share.Next]
	return Reason{
		Code: outcomeCodes[share.Outcome], Key: string(near.Key), Value: near.Value,
		Load: &Load{
			NearShare: Fraction(near.Fraction), SpillShare: balance.One - Fraction(near.Fraction), Next: string(next.Key), NextValue: next.Value,
			HasNoLabel: !near.IsKnown,
			Endpoints:  near.Endpoints, AllEndpoints: share.Endpoints, Demand: near.Demand, AllDemand: share.Demand,
			IsMeasured: share.Source == balance.Measurement,
			Unbounded:  near.Unbounded, Busiest: near.Busiest, Limit: limit,
		},
	}
}

// noSlotReason returns the reason why an endpoint that the plan could use has no slot here.
func (s Selection) noSlotReason(i int) Reason {
	fraction := Fraction(s.Cluster.Share.Fractions[i])
	if fraction == 0 {
		return Reason{Code: NotSelectedByPlan}
	}
	return Reason{Code: ShareBelowOneSlot, Load: &Load{NearShare: fraction}}
}

// placeholders returns the replacements for {kept}, {rest} and so on in a sentence, each after its name.
func (l *Load) placeholders() []string {
	if l == nil {
		l = &Load{}
	}
	return []string{
		"{kept}", l.NearShare.String(), "{rest}", l.SpillShare.String(), "{next}", groupName(l.Next, l.NextValue),
		"{endpoints}", endpointCountText(l.Endpoints, l.AllEndpoints), "{demand}", l.demandText(),
		"{unbounded}", formatRatio(l.Unbounded), "{busiest}", formatRatio(l.Busiest), "{limit}", fmt.Sprintf("%d %%", l.Limit),
	}
}

// demandText formats the part of the demand at the reason's key.
func (l *Load) demandText() string {
	if l.IsMeasured && l.AllDemand > 0 {
		return FractionOf(float64(l.Demand) / float64(l.AllDemand)).String()
	}
	return fmt.Sprintf("%d of %d", l.Demand, l.AllDemand)
}

// locationText names the location of endpoints with a value of a key.
func locationText(key, value string) string {
	if policy.Key(key) == policy.Hostname {
		return "on this node"
	}
	return "in " + groupName(key, value)
}

// groupName names the endpoints with a value of a key.
func groupName(key, value string) string {
	switch policy.Key(key) {
	case policy.AnyNode:
		return "the whole cluster"
	case policy.Hostname:
		return "this node"
	}
	return "its " + key + ", " + strconv.Quote(value)
}

func endpointCountText(count, all uint64) string {
	if all == 1 {
		return "the only endpoint is"
	}
	verb := "are"
	if count == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d endpoints %s", count, all, verb)
}

// formatRatio formats a ratio that is given in per mille, with two decimals.
func formatRatio(perMille uint64) string {
	return fmt.Sprintf("%d.%02d", (perMille+5)/1000, (perMille+5)%1000/10)
}
