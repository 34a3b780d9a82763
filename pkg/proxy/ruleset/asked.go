package ruleset

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// AskedTableName is the name of the table that counts what is asked of some frontends. It is separate from the table of
// the Services, so that no sync touches the counts, and nothing is left once counting is switched off.
const AskedTableName = "vicinity-asked"

// PriorityAsked comes before all chains that translate: after a translation the kernel asks no further chain.
const PriorityAsked = PriorityDNAT - 1

// The sets of the table. Each element counts the first packets of connections to its frontend, wherever they lead.
var (
	Asked          = Set{Name: "asked", Key: frontend, Counts: true}
	AskedNodePorts = Set{Name: "asked-nodeports", Key: nodePort, Counts: true}
)

const askedChain = "asked"

// AskedChains are the chains of the table in a family.
func AskedChains(family model.Family, config Config) []Chain {
	found := Do{Verdict{Kind: Return}} // for a node's address may be an external IP, too
	return []Chain{
		{Name: askedChain, Hook: NoHook, Rules: []Rule{
			{InSet{Key: dialled, Set: Asked}, found},
			append(matchNodePortAddr(family, config), InSet{Key: dialledNodePort, Set: AskedNodePorts}),
		}},
		{Name: EntryChain, Hook: Prerouting, Priority: PriorityAsked, Rules: []Rule{jump(askedChain)}},
		{Name: "nat-output", Hook: Output, Priority: PriorityAsked, Rules: []Rule{jump(askedChain)}},
	}
}

// AskedElements are what a table holds in a family.
type AskedElements struct {
	// Frontends are what is counted: those of the family, a node port by its unspecified address.
	Frontends map[model.Frontend]bool
	// NodePortAddrs are where node ports are served, unless they are on all addresses.
	NodePortAddrs []netip.Addr
}

// AskedKey returns the set that a frontend is counted in, and its key there.
func AskedKey(f model.Frontend) (Set, Tuple) {
	if f.IsNodePort() {
		return AskedNodePorts, Tuple{Proto: f.Protocol, Port: f.Port}
	}
	return Asked, Tuple{Addr: f.Addr, Proto: f.Protocol, Port: f.Port}
}

// AddAsked makes the table in a family, without elements.
func AddAsked(family model.Family, config Config) Batch {
	var batch Batch
	batch.add(Add, family, TableObject{})
	for _, set := range []Set{Asked, AskedNodePorts, NodePortIPs} {
		batch.add(Add, family, SetObject{set})
	}
	for _, chain := range AskedChains(family, config) {
		batch.add(Add, family, ChainObject{chain})
		batch.add(Add, family, RulesObject{chain})
	}
	return batch.inTable(AskedTableName)
}

// DeleteAsked deletes the table of a family, with what was counted.
func DeleteAsked(family model.Family) Batch {
	var batch Batch
	batch.add(Delete, family, TableObject{})
	return batch.inTable(AskedTableName)
}

// ChangeAsked leads from what the table of a family holds to what it should hold. Elements that stay keep their counts.
func ChangeAsked(family model.Family, have, want AskedElements) Batch {
	var batch Batch
	change := func(verb Verb, from, without AskedElements) {
		bySet := map[string][]Element{}
		sets := []Set{Asked, AskedNodePorts, NodePortIPs}
		for _, f := range slices.SortedFunc(maps.Keys(from.Frontends), model.Frontend.Compare) {
			if !without.Frontends[f] {
				set, key := AskedKey(f)
				bySet[set.Name] = append(bySet[set.Name], Element{Key: key})
			}
		}
		for _, addr := range from.NodePortAddrs {
			if model.FamilyOf(addr) == family && !slices.Contains(without.NodePortAddrs, addr) {
				bySet[NodePortIPs.Name] = append(bySet[NodePortIPs.Name], Element{Key: Tuple{Addr: addr}})
			}
		}
		for _, set := range sets {
			if elements := bySet[set.Name]; len(elements) > 0 {
				batch.add(verb, family, ElementsObject{Set: set, Elements: slices.Values(elements)})
			}
		}
	}
	change(Delete, have, want)
	change(Add, want, have)
	return batch.inTable(AskedTableName)
}

// inTable says of all operations that they are about another table.
func (b Batch) inTable(name string) Batch {
	for i := range b.Ops {
		b.Ops[i].Table = name
	}
	return b
}
