package ruleset

import (
	"iter"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TableName is the name of our table in each family. No other program's table has this name, and we touch no other
// program's table.
const TableName = "vicinity"

// EntryChain is the first chain that forwarded packets pass. A table has it, with its rule, once it has all elements of
// a first sync.
const EntryChain = "nat-prerouting"

// Type is nft's data type of one field of a key or of a value.
type Type uint8

// The types in use. Each field occupies a multiple of four bytes in a register: an IPv6 address sixteen, all others
// four.
const (
	TypeAddr    Type = iota // ipv4_addr or ipv6_addr, by the table's family
	TypeProto               // inet_proto
	TypePort                // inet_service
	TypeClass               // classid, the type of `meta priority`, which holds classes and slots; host byte order
	TypeVerdict             // a verdict; only as the single type of a map's value
)

// Set is a named set, or a map when Value is not empty.
type Set struct {
	Name  string
	Key   []Type
	Value []Type
	// Dynamic is set if packets add the elements. They expire.
	Dynamic bool
	// Counts is set if each element counts the packets that match it. Add of an existing element keeps its count.
	Counts bool
	// static describes a set that every table has; nil for any other set.
	static *staticSpec
}

// staticSpec describes the owners of a set's elements, and in which step of a change they are added and deleted.
type staticSpec struct {
	// ports yields the elements that a port owns; nil if ports own none.
	ports portElements
	// nodeState yields the elements that the node state needs; nil if it needs none.
	nodeState func(surroundings NodeState, family model.Family) iter.Seq[Element]
	// shared is set if several owners may have the same element. It exists as long as it has an owner.
	shared bool
	// lists is set if the owners are lists of source ranges, which ports own. Such a set is shared, too.
	lists bool
	// addedFirst is set if elements of other sets lead a packet to one of this set, which must exist before them.
	addedFirst bool
	// deferred is set if a packet in flight may still look up an element after its deletion, because it has already read
	// what leads there: a class leads to a dispatch entry, a slot to an endpoint. Such elements outlive the commit until
	// the cleanup.
	deferred bool
}

// StaticSets are declared in every table, in the order of the declarations below.
var StaticSets []Set

// addStatic adds a set to StaticSets.
func addStatic(set Set, spec staticSpec) Set {
	set.static = &spec
	StaticSets = append(StaticSets, set)
	return set
}

// IsMap reports whether the set maps its keys to values.
func (s Set) IsMap() bool { return len(s.Value) > 0 }

// MapsVerdicts reports whether the set maps its keys to verdicts.
func (s Set) MapsVerdicts() bool { return s.IsMap() && s.Value[0] == TypeVerdict }

// The fields of keys and values. A node port is served on every address in nodeport-ips, so its key has no address.
var (
	frontendTypes = []Type{TypeAddr, TypeProto, TypePort}
	nodePortTypes = []Type{TypeProto, TypePort}
	classTypes    = []Type{TypeClass}
	endpointTypes = []Type{TypeAddr, TypePort}
	verdictTypes  = []Type{TypeVerdict}
)

// The sets and maps that every table has. A set is one declaration here and the function in elements.go that yields a
// port's elements in it; most exist twice, for node ports and for all other frontends.
var (
	// The class of connections to the frontend.
	Services  = addStatic(Set{Name: "services", Key: frontendTypes, Value: classTypes}, staticSpec{ports: frontendSet((*Port).eachClass)})
	NodePorts = addStatic(Set{Name: "nodeports", Key: nodePortTypes, Value: classTypes}, staticSpec{ports: nodePortSet((*Port).eachClass)})

	// The chain of a class. The map is small, because the kernel checks all of it whenever an entry or a rule is added:
	// one entry for each number of slots that every table has or that is in use, and for each dedicated map.
	Dispatch = addStatic(
		Set{Name: "dispatch", Key: classTypes, Value: verdictTypes},
		staticSpec{ports: (*Port).eachDispatch, shared: true, addedFirst: true, deferred: true})

	// The load-balancing tables of all Services, by frontend and slot.
	Endpoints = addStatic(
		Set{Name: "endpoints", Key: []Type{TypeAddr, TypeProto, TypePort, TypeClass}, Value: endpointTypes},
		staticSpec{ports: frontendSet((*Port).eachSlot), deferred: true})
	NodePortEndpoints = addStatic(
		Set{Name: "nodeport-endpoints", Key: []Type{TypeProto, TypePort, TypeClass}, Value: endpointTypes},
		staticSpec{ports: nodePortSet((*Port).eachSlot), deferred: true})

	// Only for Services with session affinity: the class for clients for which no endpoint is stored yet, and its chain.
	Sticky = addStatic(
		Set{Name: "sticky", Key: frontendTypes, Value: classTypes}, staticSpec{ports: stickySet(frontendSet((*Port).eachStickyClass))})
	NodePortSticky = addStatic(
		Set{Name: "nodeport-sticky", Key: nodePortTypes, Value: classTypes}, staticSpec{ports: stickySet(nodePortSet((*Port).eachStickyClass))})
	StickyDispatch = addStatic(
		Set{Name: "sticky-dispatch", Key: classTypes, Value: verdictTypes},
		staticSpec{ports: stickySet((*Port).eachStickyDispatch), shared: true, addedFirst: true, deferred: true})

	// The same Services: the number of the port; another number for clients outside the cluster if a Local policy governs
	// them; and the number of the endpoint in each slot.
	StickyPorts = addStatic(
		Set{Name: "sticky-ports", Key: frontendTypes, Value: classTypes}, staticSpec{ports: stickySet(frontendSet((*Port).eachStickyPort))})
	NodePortStickyPorts = addStatic(
		Set{Name: "nodeport-sticky-ports", Key: nodePortTypes, Value: classTypes},
		staticSpec{ports: stickySet(nodePortSet((*Port).eachStickyPort))})
	StickyOutside = addStatic(
		Set{Name: "sticky-outside", Key: frontendTypes, Value: classTypes}, staticSpec{ports: stickySet(frontendSet((*Port).eachStickyOutside))})
	NodePortStickyOutside = addStatic(
		Set{Name: "nodeport-sticky-outside", Key: nodePortTypes, Value: classTypes},
		staticSpec{ports: stickySet(nodePortSet((*Port).eachStickyOutside))})
	StickyEndpoints = addStatic(
		Set{Name: "sticky-endpoints", Key: []Type{TypeAddr, TypeProto, TypePort, TypeClass}, Value: classTypes},
		staticSpec{ports: stickySet(frontendSet((*Port).eachStickySlot)), deferred: true})
	NodePortStickyEndpoints = addStatic(
		Set{Name: "nodeport-sticky-endpoints", Key: []Type{TypeProto, TypePort, TypeClass}, Value: classTypes},
		staticSpec{ports: stickySet(nodePortSet((*Port).eachStickySlot)), deferred: true})

	// The endpoint of each number. When an endpoint is removed, its element is deleted.
	Numbered = addStatic(
		Set{Name: "numbered", Key: []Type{TypeProto, TypeClass}, Value: endpointTypes},
		staticSpec{ports: stickySet((*Port).eachNumbered), addedFirst: true})
	NumberedCollided = addStatic(
		Set{Name: "numbered-collided", Key: []Type{TypeProto, TypeClass}, Value: endpointTypes},
		staticSpec{ports: stickySet((*Port).eachCollided), addedFirst: true})

	// externalTrafficPolicy: Cluster: all clients are masqueraded.
	ExternalCluster = addStatic(
		Set{Name: "external-cluster", Key: frontendTypes}, staticSpec{ports: frontendSet((*Port).eachExternalCluster)})
	NodePortCluster = addStatic(
		Set{Name: "nodeport-cluster", Key: nodePortTypes}, staticSpec{ports: nodePortSet((*Port).eachExternalCluster)})

	// externalTrafficPolicy: Local: only the node itself is masqueraded.
	ExternalLocal = addStatic(
		Set{Name: "external-local", Key: frontendTypes}, staticSpec{ports: frontendSet((*Port).eachExternalLocal)})
	NodePortLocal = addStatic(
		Set{Name: "nodeport-local", Key: nodePortTypes}, staticSpec{ports: nodePortSet((*Port).eachExternalLocal)})

	// A load balancer's address with loadBalancerSourceRanges: the number of the list of clients that may dial it.
	Restricted = addStatic(
		Set{Name: "restricted", Key: frontendTypes, Value: classTypes}, staticSpec{ports: frontendSet((*Port).eachRestricted)})

	// The ranges of all lists: the number of the list, the first address, the last one.
	Sources = addStatic(
		Set{Name: "sources", Key: []Type{TypeClass, TypeAddr, TypeAddr}},
		staticSpec{ports: (*Port).eachSource, shared: true, lists: true, addedFirst: true, deferred: true})

	// Every ClusterIP: undefined ports are refused.
	ClusterIPs = addStatic(
		Set{Name: "cluster-ips", Key: []Type{TypeAddr}}, staticSpec{ports: (*Port).eachClusterIP, shared: true})

	// The addresses on which node ports are served, unless on all local addresses.
	NodePortIPs = addStatic(
		Set{Name: "nodeport-ips", Key: []Type{TypeAddr}}, staticSpec{nodeState: NodeState.elements})

	// Endpoints on this node, as source and as destination.
	Hairpin = addStatic(
		Set{Name: "hairpin", Key: []Type{TypeAddr, TypeAddr, TypeProto, TypePort}}, staticSpec{ports: (*Port).eachHairpin, shared: true})
)

// staticRank returns the index of a set in StaticSets; -1 if it is not static.
func staticRank(name string) int {
	return slices.IndexFunc(StaticSets, func(set Set) bool { return set.Name == name })
}

// SetByName returns the set of a name, if the name alone determines it. Sets that packets fill are not read.
func SetByName(name string) (set Set, ok bool) {
	if set, ok = RestoredSet(name); ok {
		return set, true
	}
	switch {
	case staticRank(name) >= 0, strings.HasPrefix(name, endpointsPrefix), strings.HasPrefix(name, stickyPrefix+endpointsPrefix):
		return setOf(name), true
	}
	return Set{}, false
}

// setOf returns a static set, or the dedicated map of a port, by its name.
func setOf(name string) Set {
	if rank := staticRank(name); rank >= 0 {
		return StaticSets[rank]
	}
	if strings.HasPrefix(name, stickyPrefix) {
		return newStickyDedicatedMap(name)
	}
	return newDedicatedMap(name)
}
