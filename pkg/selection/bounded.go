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

// plans are plans for reuse, because a plan keeps its memory.
var plans = sync.Pool{New: func() any { return new(balance.Plan) }}

// selectBounded keeps as many connections near as the Service's bound allows, and spreads the others. While some nodes
// are unknown there is no plan: the first key wins, as without a bound.
func selectBounded(service *model.Service, endpoints []model.PortEndpoint, viewpoint Viewpoint) Choice {
	keys := service.Topology.Keys
	byKeys := func(endpoints []model.PortEndpoint) Choice { return selectByKeys(keys, endpoints, viewpoint) }
	demand, known := viewpoint.demandOf(service)
	if !known {
		choice := preferOthers(endpoints, byKeys)
		if len(choice.Endpoints) > 0 && choice.Endpoints[0].Avoid == nil {
			choice.Reason.Code = NodesUnknown
		}
		return choice
	}
	alike := asSeenByAll(endpoints)
	part, share := viewpoint.share(service, alike, demand)
	part.slots, part.kept, part.source = share.Slots(service.Name, part.hashes), share.Kept(), share.Source
	if share.Outcome == balance.Nobody {
		choice := byKeys(endpoints) // with the reason
		choice.planned = &part
		return choice
	}
	for _, step := range share.Steps {
		part.sent = append(part.sent, uint32(step.Part/(balance.ONE/sharesOne)))
	}
	choice := Choice{Share: &share, Reason: reasonOf(&share, service.Topology.MaxLoad), Tier: tierOf(&share), planned: &part}
	choice.fill(reachable(part.slots, endpoints), endpoints)
	if len(choice.Endpoints) == 0 {
		choice.fillWithout(part.slots, endpoints, byKeys)
	}
	choice.noteAvoided()
	if service.AffinityTimeout > 0 {
		isUnreachable := choice.Endpoints[0].IsUnreachable()
		choice.Spared = pick(endpoints, func(endpoint *model.PortEndpoint) bool {
			return hasRank(endpoint, share.Rank) && viewpoint.allows(keys, endpoint) && endpoint.IsUnreachable() == isUnreachable
		})
	}
	return choice
}

// reachable returns the slots of endpoints whose nodes answer this one: only these are drawn, in the same proportion.
func reachable(slots []int, endpoints []model.PortEndpoint) []int {
	if !slices.ContainsFunc(endpoints, isUnreachable) {
		return slots
	}
	left := slices.Clone(slots)
	for i := range left {
		if endpoints[i].IsUnreachable() {
			left[i] = 0
		}
	}
	return left
}

// fillWithout is for a plan that sends everything to nodes that do not answer this one. It uses the other endpoints
// that the keys allow, without a bound; or, if there are none, the plan.
func (c *Choice) fillWithout(slots []int, endpoints []model.PortEndpoint, byKeys func([]model.PortEndpoint) Choice) {
	others := pick(endpoints, func(endpoint *model.PortEndpoint) bool { return !endpoint.IsUnreachable() })
	if choice := preferOthers(others, byKeys); len(choice.Endpoints) > 0 {
		c.Endpoints, c.Reason, c.Tier = choice.Endpoints, choice.Reason, choice.Tier
		return
	}
	c.fill(slots, endpoints)
}

// hasRank reports whether an endpoint may be used, and has a rank as all nodes see it.
func hasRank(endpoint *model.PortEndpoint, wanted model.Rank) bool {
	rank, usable := endpoint.RankSeenByAll()
	return usable && rank == wanted
}

// planned is the input and the result of a plan for one port: enough to tell whether a change of the demand makes a
// difference.
type planned struct {
	places *balance.Places
	hashes []uint32 // of the endpoints
	slots  []int    // of each endpoint
	sent   []uint32 // what goes to the endpoints that each key matches, of sharesOne; nil if this node refuses
	kept   balance.Kept
	source balance.Source // of the demand
}

func newPlanned(service *model.Service, endpoints []model.PortEndpoint, viewpoint Viewpoint) planned {
	return planned{
		places: balance.NewPlaces(service.Topology.Keys, endpoints, viewpoint.ValueOf), hashes: balance.Hashes(endpoints),
	}
}

// share plans for all nodes, unless the plan is kept, and returns this node's part and what it was made of.
func (v Viewpoint) share(service *model.Service, endpoints []model.PortEndpoint, demand balance.Demand) (planned, balance.Share) {
	if v.plan != nil {
		return v.plan.share(service, endpoints, demand, v)
	}
	part := newPlanned(service, endpoints, v)
	return part, part.plan(service, demand, v.Node)
}

// plan plans for all nodes, and returns one node's part.
func (p *planned) plan(service *model.Service, demand balance.Demand, node model.Node) balance.Share {
	plan := plans.Get().(*balance.Plan)
	defer plans.Put(plan)
	plan.Make(demand, p.places, int(service.Topology.MaxLoad))
	return plan.Share(node.Name, node.Labels)
}

func (v Viewpoint) demandOf(service *model.Service) (balance.Demand, bool) {
	if v.Demand == nil {
		return balance.Demand{}, false
	}
	return v.Demand(service)
}

// fill takes the endpoints that have slots.
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

// tierOf returns the key at which most connections stay; the first of several.
func tierOf(share *balance.Share) string {
	most := 0
	for i := range share.Steps {
		if share.Steps[i].Part > share.Steps[most].Part {
			most = i
		}
	}
	return string(share.Steps[most].Key)
}

// Load holds a Reason's numbers about a Service whose load is bounded. Loads are per mille of the mean.
type Load struct {
	// Kept is the part of this node's connections that stay at the reason's key, and Rest the part that goes on, most of
	// it to Next: a key, with this node's value of it.
	Kept, Rest      Part
	Next, NextValue string
	// HasNoLabel: this node has no label of the reason's key.
	HasNoLabel bool
	// Endpoints of AllEndpoints are there, for Demand of AllDemand. Measured demand is in an arbitrary unit.
	Endpoints, AllEndpoints, Demand, AllDemand uint64
	IsMeasured                                 bool
	// Unbounded is what they would expect without the bound, Busiest is what the busiest of them expects, and Limit is the
	// bound, in percent.
	Unbounded, Busiest, Limit uint64
}

// Part is a part of a node's connections, of balance.ONE.
type Part uint64

// PartOf returns a part of 1.
func PartOf(ratio float64) Part { return Part(ratio * balance.ONE) }

// Ratio returns the part of 1.
func (p Part) Ratio() float64 { return float64(p) / balance.ONE }

// String returns percent. It never rounds to all or to nothing.
func (p Part) String() string {
	percent := p.Ratio() * 100
	switch {
	case p == 0 || p == balance.ONE:
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

// codes are the reasons of the outcomes.
var codes = map[balance.Outcome]Code{
	balance.KeptNear:        KeptNear,
	balance.SpilledOverLoad: SpilledOverLoad,
	balance.NobodyNear:      NobodyNear,
	balance.OverLoad:        OverLoad,
}

func reasonOf(share *balance.Share, limit uint64) Reason {
	near, next := &share.Steps[share.Near], &share.Steps[share.Next]
	return Reason{
		Code: codes[share.Outcome], Key: string(near.Key), Value: near.Value,
		Load: &Load{
			Kept: Part(near.Part), Rest: balance.ONE - Part(near.Part), Next: string(next.Key), NextValue: next.Value,
			HasNoLabel: !near.Known,
			Endpoints:  near.Endpoints, AllEndpoints: share.Endpoints, Demand: near.Demand, AllDemand: share.Demand,
			IsMeasured: share.Source == balance.Measurement,
			Unbounded:  near.Unbounded, Busiest: near.Busiest, Limit: limit,
		},
	}
}

// whyWithoutSlot is why an endpoint that the plan could use has no slot here.
func (s Selection) whyWithoutSlot(i int) Reason {
	part := Part(s.Cluster.Share.Parts[i])
	if part == 0 {
		return Reason{Code: NotNeededHere}
	}
	return Reason{Code: BelowOneSlot, Load: &Load{Kept: part}}
}

// words are the replacements in a sentence for {kept}, {rest} and so on, each after its name.
func (l *Load) words() []string {
	if l == nil {
		l = &Load{}
	}
	return []string{
		"{kept}", l.Kept.String(), "{rest}", l.Rest.String(), "{next}", groupName(l.Next, l.NextValue),
		"{endpoints}", endpointsOf(l.Endpoints, l.AllEndpoints), "{demand}", l.asked(),
		"{unbounded}", times(l.Unbounded), "{busiest}", times(l.Busiest), "{limit}", fmt.Sprintf("%d %%", l.Limit),
	}
}

// asked says which part of the demand is there.
func (l *Load) asked() string {
	if l.IsMeasured && l.AllDemand > 0 {
		return PartOf(float64(l.Demand) / float64(l.AllDemand)).String()
	}
	return fmt.Sprintf("%d of %d", l.Demand, l.AllDemand)
}

// there says where endpoints with a value of a key are.
func there(key, value string) string {
	if policy.Key(key) == policy.Hostname {
		return "on this node"
	}
	return "in " + groupName(key, value)
}

// groupName is what endpoints with a value of a key are called.
func groupName(key, value string) string {
	switch policy.Key(key) {
	case policy.AnyNode:
		return "the whole cluster"
	case policy.Hostname:
		return "this node"
	}
	return "its " + key + ", " + strconv.Quote(value)
}

func endpointsOf(some, all uint64) string {
	if all == 1 {
		return "the only endpoint is"
	}
	verb := "are"
	if some == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d endpoints %s", some, all, verb)
}

// times writes a ratio that is given per mille.
func times(perMille uint64) string {
	return fmt.Sprintf("%d.%02d", (perMille+5)/1000, (perMille+5)%1000/10)
}
