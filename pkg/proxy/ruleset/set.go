package ruleset

import "slices"

// TableName is the name of our table in each family. Nobody else's table has it, and we never touch another.
const TableName = "vicinity"

// Type is nft's data type of one field of a key or of a value.
type Type uint8

// The types in use. Each field occupies a multiple of four bytes in a register: an IPv6 address sixteen, all others four.
const (
	TypeAddr    Type = iota // ipv4_addr or ipv6_addr, by the table's family
	TypeProto               // inet_proto
	TypePort                // inet_service
	TypePrefix              // ipv4_addr or ipv6_addr, as an interval: only as the last field of an Interval set
	TypeClass               // classid, the type of `meta priority`, where classes and slots travel; host byte order
	TypeVerdict             // a verdict; only as the single type of a map's value
)

// Set is a named set, or a map when Value is not empty.
type Set struct {
	Name  string
	Key   []Type
	Value []Type
	// Dynamic sets are filled by the packet path. Their elements expire.
	Dynamic bool
	// Interval sets hold ranges. No two of their elements may overlap.
	Interval bool
}

// IsMap reports whether the set maps its keys to values.
func (s Set) IsMap() bool { return len(s.Value) > 0 }

// The sets and maps that every table has. frontend stands for `address . protocol . port`, node port for `protocol . port`: one
// that is served on every address in nodeport-ips.
//
//	services            frontend         : class            what to do with a connection to the frontend
//	nodeports           node port        : class
//	dispatch            class            : verdict          tiny: one entry for each class in use
//	endpoints           frontend . slot  : address . port   the load-balancing tables of all Services
//	nodeport-endpoints  node port . slot : address . port
//	sticky              frontend         : verdict          Services with session affinity only: where to look a client up
//	nodeport-sticky     node port        : verdict
//	learn               frontend         : verdict          the same Services: where to remember a client
//	nodeport-learn      node port        : verdict
//	sticky-endpoints    frontend . address                  the endpoints of those Services: nobody else is remembered
//	nodeport-sticky-…   node port . address
//	external-cluster    frontend                            externalTrafficPolicy: Cluster: all clients are masqueraded
//	nodeport-cluster    node port
//	external-local      frontend                            externalTrafficPolicy: Local: only the node itself is
//	nodeport-local      node port
//	restricted          frontend                            a load balancer's address with loadBalancerSourceRanges
//	allowed-sources     frontend . prefix                   who may dial it
//	cluster-ips         address                             every ClusterIP: undefined ports are refused
//	nodeport-ips        address                             where node ports are served, unless on all local addresses
//	hairpin             address . address . protocol . port endpoints on this node, as source and as destination
var (
	Services          = Set{Name: "services", Key: frontend, Value: []Type{TypeClass}}
	NodePorts         = Set{Name: "nodeports", Key: nodePort, Value: []Type{TypeClass}}
	Dispatch          = Set{Name: "dispatch", Key: []Type{TypeClass}, Value: []Type{TypeVerdict}}
	Endpoints         = Set{Name: "endpoints", Key: []Type{TypeAddr, TypeProto, TypePort, TypeClass}, Value: endpoint}
	NodePortEndpoints = Set{Name: "nodeport-endpoints", Key: []Type{TypeProto, TypePort, TypeClass}, Value: endpoint}
	Sticky            = Set{Name: "sticky", Key: frontend, Value: []Type{TypeVerdict}}
	NodePortSticky    = Set{Name: "nodeport-sticky", Key: nodePort, Value: []Type{TypeVerdict}}
	Learn             = Set{Name: "learn", Key: frontend, Value: []Type{TypeVerdict}}
	NodePortLearn     = Set{Name: "nodeport-learn", Key: nodePort, Value: []Type{TypeVerdict}}
	StickyEndpoints   = Set{Name: "sticky-endpoints", Key: []Type{TypeAddr, TypeProto, TypePort, TypeAddr}}
	ExternalCluster   = Set{Name: "external-cluster", Key: frontend}
	NodePortCluster   = Set{Name: "nodeport-cluster", Key: nodePort}
	ExternalLocal     = Set{Name: "external-local", Key: frontend}
	NodePortLocal     = Set{Name: "nodeport-local", Key: nodePort}
	Restricted        = Set{Name: "restricted", Key: frontend}
	AllowedSources    = Set{Name: "allowed-sources", Key: []Type{TypeAddr, TypeProto, TypePort, TypePrefix}, Interval: true}
	ClusterIPs        = Set{Name: "cluster-ips", Key: []Type{TypeAddr}}
	NodePortIPs       = Set{Name: "nodeport-ips", Key: []Type{TypeAddr}}
	Hairpin           = Set{Name: "hairpin", Key: []Type{TypeAddr, TypeAddr, TypeProto, TypePort}}

	NodePortStickyEndpoints = Set{Name: "nodeport-sticky-endpoints", Key: []Type{TypeProto, TypePort, TypeAddr}}

	frontend = []Type{TypeAddr, TypeProto, TypePort}
	nodePort = []Type{TypeProto, TypePort}
	endpoint = []Type{TypeAddr, TypePort}

	// StaticSets are declared in every table, in this order.
	StaticSets = []Set{
		Services, NodePorts, Dispatch, Endpoints, NodePortEndpoints, Sticky, NodePortSticky, Learn, NodePortLearn,
		StickyEndpoints, NodePortStickyEndpoints,
		ExternalCluster, NodePortCluster, ExternalLocal, NodePortLocal, Restricted, AllowedSources, ClusterIPs, NodePortIPs, Hairpin,
	}
)

// staticRank returns the place of a set in StaticSets, and -1 if it is none of them.
func staticRank(name string) int {
	return slices.IndexFunc(StaticSets, func(set Set) bool { return set.Name == name })
}

// Affinity returns a map in which a Service port remembers its clients: client : endpoint's address. The endpoint's port is the
// map's own: a Service port has one such map for each port number that its endpoints have, nearly always a single one. (nft
// 1.0.6 cannot load a rule that learns an IPv6 address and a port together: netlink_linearize.c gives them too few registers.)
//
// The kernel bounds a set that packets fill to 65535 elements, so that a crowd of clients fills its own Service's map and never
// another's. To say that size would make it take 2 MiB for each map at once.
func Affinity(name string) Set {
	return Set{Name: name, Key: []Type{TypeAddr}, Value: []Type{TypeAddr}, Dynamic: true}
}
