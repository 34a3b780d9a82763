package ruleset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Source ranges. Each list of them that is in use is a set of its own, named by its content, and shared by all
// frontends that have the list: a change costs its own list, and many frontends with one list cost no more than one.
// A frontend leads to its list by a class, and the class by the dispatch map to the chain that looks into the set.
const (
	sourcesPrefix = "sources-"
	allowPrefix   = "allow-"
	// listIDBytes make two lists with the same name as unlikely as a broken machine.
	listIDBytes = 16
)

// sourceList is who may dial the restricted frontends of a port, as the tables know it. The zero value is everybody.
type sourceList struct {
	id    string // names the set and the chain
	class Class
}

// SourceList returns the set of a list of source ranges.
func SourceList(id string) Set {
	return Set{Name: sourcesPrefix + id, Key: []Type{TypePrefix}, Interval: true}
}

// listID returns the name of a list: the same for the same prefixes in the same order.
func listID(prefixes []netip.Prefix) string {
	hash := sha256.New()
	for _, prefix := range prefixes {
		addr := prefix.Addr().As16()
		hash.Write(addr[:])
		hash.Write([]byte{byte(prefix.Bits())})
	}
	return hex.EncodeToString(hash.Sum(nil)[:listIDBytes])
}

// rangesOf returns the elements of a list.
func rangesOf(prefixes []netip.Prefix) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		for _, prefix := range prefixes {
			if !yield(Element{Key: Tuple{Source: prefix.Addr(), Bits: uint8(prefix.Bits())}}) {
				return
			}
		}
	}
}

// holds reports whether a list in the kernel has just these ranges.
func holds(found []Element, prefixes []netip.Prefix) bool {
	deleted, added := difference(slices.Values(found), rangesOf(prefixes))
	return len(deleted)+len(added) == 0
}

// allowChain drops what comes from elsewhere. A packet that passes is without a class again: one that keeps the class
// of a list found no chain.
func allowChain(id string) Chain {
	return Chain{Name: allowPrefix + id, Hook: NoHook, Rules: []Rule{
		{InSet{Key: []Field{SourceAddr}, Set: SourceList(id), Not: true}, Do{Verdict{Kind: Drop}}},
		{WritePriority{}},
	}}
}

// restrict gives the list of a port its name and class.
func (d *draft) restrict(port *Port) {
	if port.isRestricted() {
		port.list.id = d.listID(port.Sources)
		port.list.class = d.classOf(port.ID.Family, Dispatch, sourcesClass, allowPrefix+port.list.id)
	}
}

// listID returns the name of a list. Many ports of a Service have the same one.
func (d *draft) listID(prefixes []netip.Prefix) string {
	if d.lists == nil {
		d.lists = map[*netip.Prefix]string{}
	}
	id, known := d.lists[&prefixes[0]]
	if !known {
		id = listID(prefixes)
		d.lists[&prefixes[0]] = id
	}
	return id
}

// classOf returns the class that leads to a chain: the one that the chain's name decides, so that it is the same after a
// restart, or the next one that leads to no other chain.
func (d *draft) classOf(family model.Family, dispatch Set, first Class, chain string) Class {
	return numberedClass(first, chain, func(class Class) string { return d.dispatched(family, dispatch, class) })
}

func numberedClass(first Class, chain string, dispatched func(Class) (chain string)) Class {
	hash := sha256.Sum256([]byte(chain))
	for number := binary.BigEndian.Uint32(hash[:]); ; number++ {
		class := first | Class(number&maxNumbered)
		if there := dispatched(class); there == "" || there == chain {
			return class
		}
	}
}

// dispatched returns the chain to which a class may lead a packet until the next sweep, if it leads to one.
func (d *draft) dispatched(family model.Family, dispatch Set, class Class) string {
	key := elementKey{family, dispatch.Name, Tuple{Number: uint32(class)}}
	if shared, ok := d.plan.elements[key]; ok {
		return shared.verdict.Chain
	}
	if shared, ok := d.mirror.elements[key]; ok {
		return shared.verdict.Chain
	}
	return d.mirror.late[objectKey{family, dispatch.Name}][key.key].Verdict.Chain
}
