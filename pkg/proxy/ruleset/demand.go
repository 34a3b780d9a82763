package ruleset

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// DemandTableName is the name of the table that counts new connections to some frontends. It is separate from the table
// of the Services, so that no sync touches the counts, and nothing remains once counting is disabled.
const DemandTableName = "vicinity-demand"

// DemandTableNames are DemandTableName and the name that the table had in earlier versions. To delete the table, delete
// both.
var DemandTableNames = [...]string{DemandTableName, "vicinity-asked"}

// PriorityDemand precedes all chains that translate the source: after a translation the kernel runs no further chain.
const PriorityDemand = PrioritySNAT - 9

// The sets of the table. Each element counts the connections to its frontend, whichever endpoint they reach.
var (
	DemandSet         = Set{Name: "demand", Key: frontendTypes, Counts: true}
	DemandNodePortSet = Set{Name: "demand-nodeports", Key: nodePortTypes, Counts: true}
)

const demandChain = "demand"

// DemandChains returns the chains of the table in a family. They are in the hooks at the end of a packet's path:
// packets that a filter drops, such as that of a network policy, do not get there, and must not count as demand. The
// kernel runs all NAT chains of these hooks at one point, at NF_IP_PRI_NAT_SRC, whatever their priorities are, and
// therefore after filters of any lower priority. Each connection passes them once: a retransmitted packet belongs to a
// known connection, unless a filter dropped the earlier one. A connection of the node to itself passes only
// postrouting. Resets and ICMP errors that refuse a connection pass here, too: they belong to that connection, but are
// not new.
//
// By then the destination is translated, so the dialled address comes from conntrack. Only connections that our tables
// translate have the label, and count: neither those that other programs serve, nor those refused for lack of an
// endpoint.
func DemandChains(family model.Family) []Chain {
	rules := eachProtocol(InSet{Key: conntrackFrontend, Set: DemandSet})
	rules = append(rules, eachProtocol(HasLabel{NodePortLabel}, InSet{Key: conntrackNodePort, Set: DemandNodePortSet})...)
	count := []Rule{{IsNew{}, HasLabel{TranslatedLabel}, VerdictStatement{Verdict{Kind: Jump, Chain: demandChain}}}}
	return []Chain{
		{Name: demandChain, Hook: NoHook, Rules: rules},
		{Name: "nat-input", Hook: Input, Priority: PriorityDemand, Rules: count},
		{Name: "nat-postrouting", Hook: Postrouting, Priority: PriorityDemand, Rules: count},
	}
}

// DemandKey returns the set that counts a frontend, and its key there.
func DemandKey(f model.Frontend) (Set, Tuple) {
	if f.IsNodePort() {
		return DemandNodePortSet, frontendTuple(f)
	}
	return DemandSet, frontendTuple(f)
}

// AddDemandTable returns the batch that creates the table in a family, without elements.
func AddDemandTable(family model.Family) Batch {
	var batch Batch
	batch.add(Add, family, TableObject{})
	for _, set := range []Set{DemandSet, DemandNodePortSet} {
		batch.add(Add, family, SetObject{set})
	}
	for _, chain := range DemandChains(family) {
		batch.add(Add, family, ChainObject{chain})
		batch.add(Add, family, RulesObject{chain})
	}
	return batch.inTable(DemandTableName)
}

// DeleteDemandTable returns the batch that deletes the table of a family, and its counts, by one of DemandTableNames.
func DeleteDemandTable(family model.Family, name string) Batch {
	var batch Batch
	batch.add(Delete, family, TableObject{})
	return batch.inTable(name)
}

// UpdateDemandTable returns the batch that makes the table of a family count the frontends in want instead of those in
// have: frontends of the family, a node port with its unspecified address. Elements that remain keep their counts.
func UpdateDemandTable(family model.Family, have, want map[model.Frontend]bool) Batch {
	var batch Batch
	change := func(verb Verb, from, without map[model.Frontend]bool) {
		bySet := map[string][]Element{}
		for _, f := range slices.SortedFunc(maps.Keys(from), model.Frontend.Compare) {
			if !without[f] {
				set, key := DemandKey(f)
				bySet[set.Name] = append(bySet[set.Name], Element{Key: key})
			}
		}
		for _, set := range []Set{DemandSet, DemandNodePortSet} {
			batch.addElements(verb, family, set, bySet[set.Name])
		}
	}
	change(Delete, have, want)
	change(Add, want, have)
	return batch.inTable(DemandTableName)
}

// inTable directs all operations to another table.
func (b Batch) inTable(name string) Batch {
	for i := range b.Ops {
		b.Ops[i].Table = name
	}
	return b
}
