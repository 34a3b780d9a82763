package ruleset

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// DemandTableName is the name of the table that counts what is asked of some frontends. It is separate from the table of
// the Services, so that no sync touches the counts, and nothing is left once counting is switched off.
const DemandTableName = "vicinity-demand"

// AskedTableNames are that name, and the one that the table had in earlier versions: whoever deletes it deletes both.
var AskedTableNames = [...]string{DemandTableName, "vicinity-asked"}

// PriorityDemand comes before all chains that translate the source: after a translation the kernel asks no further chain.
const PriorityDemand = PrioritySNAT - 9

// The sets of the table. Each element counts the connections to its frontend, wherever they lead.
var (
	DemandSet         = Set{Name: "demand", Key: frontend, Counts: true}
	DemandNodePortSet = Set{Name: "demand-nodeports", Key: nodePort, Counts: true}
)

const demandChain = "demand"

// DemandChains are the chains of the table in a family. They are where a packet ends that goes on: what a filter drops,
// such as that of a network policy, does not get there, and must not count as demand. The kernel runs all NAT chains of
// these hooks at one point, at NF_IP_PRI_NAT_SRC, whatever their priorities are, and therefore behind filters of any
// lower priority. It shows them each connection once: a packet that is sent again finds its connection known, unless a
// filter dropped the one before. A connection of the node to itself is shown in postrouting alone. Refusals come through
// here, too, resets and ICMP errors: they carry the connection that they refuse, but are not new.
//
// By then the destination is translated, so that conntrack has to say what was dialled. Only what our tables translate
// has the label, and counts: neither what other programs serve, nor what is refused because no endpoint is there.
func DemandChains(family model.Family) []Chain {
	rules := eachProtocol(InSet{Key: origTupleConntrack, Set: DemandSet})
	rules = append(rules, eachProtocol(HasLabel{NodePortLabel}, InSet{Key: originallyDialledNodePort, Set: DemandNodePortSet})...)
	count := []Rule{{IsNew{}, HasLabel{TranslatedLabel}, VerdictStatement{Verdict{Kind: Jump, Chain: demandChain}}}}
	return []Chain{
		{Name: demandChain, Hook: NoHook, Rules: rules},
		{Name: "nat-input", Hook: Input, Priority: PriorityDemand, Rules: count},
		{Name: "nat-postrouting", Hook: Postrouting, Priority: PriorityDemand, Rules: count},
	}
}

// DemandKey returns the set that a frontend is counted in, and its key there.
func DemandKey(f model.Frontend) (Set, Tuple) {
	if f.IsNodePort() {
		return DemandNodePortSet, frontendTuple(f)
	}
	return DemandSet, frontendTuple(f)
}

// AddDemandTable makes the table in a family, without elements.
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

// DeleteDemandTable deletes the table of a family, by one of AskedTableNames, with what was counted.
func DeleteDemandTable(family model.Family, name string) Batch {
	var batch Batch
	batch.add(Delete, family, TableObject{})
	return batch.inTable(name)
}

// UpdateDemandTable leads from the frontends that the table of a family counts to those that it should count: frontends of the
// family, a node port by its unspecified address. Elements that stay keep their counts.
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

// inTable says of all operations that they are about another table.
func (b Batch) inTable(name string) Batch {
	for i := range b.Ops {
		b.Ops[i].Table = name
	}
	return b
}
