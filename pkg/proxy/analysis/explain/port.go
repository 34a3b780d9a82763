package explain

import "time"

// PortReport is the story of one Service port in one family on one node.
//
// Its JSON names are an interface: scripts read them.
type PortReport struct {
	Node string `json:"node,omitempty"`
	// Alike are the other nodes that decide the same; nil without any, and unless all nodes are explained.
	Alike    *Alike `json:"alike,omitempty"`
	Service  string `json:"service"`  // namespace/name; empty for an address of no Service
	Port     string `json:"port"`     // the port's name, often empty
	Number   int    `json:"number"`   // the port that clients dial, except for the node port
	Protocol string `json:"protocol"` // TCP, UDP or SCTP; empty for the addresses of a headless Service
	Family   string `json:"family"`   // IPv4 or IPv6
	// Address and Protocols are what was dialled, address:port, and over which protocols, where that leads to no Service port
	// but meets a rule all the same. Service then has the address as its ClusterIP; Port and Protocol are empty.
	Address   string   `json:"address,omitempty"`
	Protocols []string `json:"protocols,omitempty"`
	// Name is what clients of a headless Service ask DNS for, without the cluster's domain; empty for all others.
	Name string `json:"name,omitempty"`

	// Frontends are what clients dial and reach this port by, the ClusterIP first; empty if other Services own them all,
	// never null. Lost are the ones that the port should also have, but another Service owns.
	Frontends     []Frontend     `json:"frontends"`
	LostFrontends []LostFrontend `json:"lost,omitempty"`

	// Outcome is what happens to a new connection to the ClusterIP: balance, refuse or drop; or lost, if another Service
	// owns the ClusterIP on this port. For a headless Service it is what DNS answers: answer, empty or refuse; after a
	// refusal the cluster's DNS answers. Message says the same as a sentence.
	Outcome string `json:"outcome"`
	Message string `json:"message"`
	// Traffic says the same for all owned frontends, separately for clients that are treated differently; never null.
	Traffic []Traffic `json:"traffic"`

	// Cluster holds the endpoints for traffic that no policy keeps on the node; Local those for traffic that
	// internalTrafficPolicy or externalTrafficPolicy keeps there, nil without such a policy.
	Cluster Choice  `json:"cluster"`
	Local   *Choice `json:"local,omitempty"`

	// NextTiers are what clients that choose endpoints themselves, by xDS, turn to while the endpoints for the ClusterIP
	// do not answer: one tier after the other, in the order of the topology keys. Empty if there is no further tier.
	NextTiers []Tier `json:"nextTiers,omitempty"`

	// NodesFrom is the source of other nodes' labels, one of model.TopologyResources, if any such label decides about the
	// Service; empty if none does.
	NodesFrom string `json:"nodesFrom,omitempty"`
	// Load is how a load bound distributes all nodes' connections; nil without a bound, and while not all Nodes are known.
	Load *Load `json:"load,omitempty"`

	// Excluded lists the endpoints that no choice contains; never null. IsCondensed: some entries are about several of them.
	Excluded    []Excluded `json:"excluded"`
	IsCondensed bool       `json:"-"`
	// UnusedSlices are the Service's EndpointSlices that do nothing for this port, at most 20; and those some of whose
	// addresses are ignored.
	UnusedSlices []UnusedSlice `json:"unusedSlices,omitempty"`

	// AllowedSources are the prefixes whose clients may dial the LoadBalancerIPs: spec.loadBalancerSourceRanges, and, if
	// this node is inside one of them, the LoadBalancerIPs themselves. Other clients get no answer there; the other
	// frontends are open to all. Without any, so are the LoadBalancerIPs.
	AllowedSources []string `json:"allowedSources,omitempty"`
	// HealthCheck is what load balancers read about the Service; nil without a healthCheckNodePort.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// AffinitySeconds is how long a client keeps its endpoint after its newest connection; zero without session affinity.
	// It has one endpoint for all traffic of the same choice, whichever frontend it dials.
	AffinitySeconds int `json:"affinitySeconds,omitempty"`
	// Rejected says that the kernel of the node does something else, because it refuses this version of the Service; nil if
	// the kernel took it, or if no running proxy was asked.
	Rejected *Rejection `json:"refused,omitempty"`
	// Warnings are sentences about what the Service asks for but does not get, and what is probably a mistake.
	Warnings []string `json:"warnings,omitempty"`
}

// Alike are nodes that decide the same as the node that is explained.
type Alike struct {
	Nodes []string `json:"nodes"` // sorted, never empty
	// But says in a sentence what is another one on each of these nodes, such as the endpoints on the node itself; empty if
	// nothing is but the node's name.
	But string `json:"but,omitempty"`
}

// Frontend is what a client dials.
type Frontend struct {
	Address string `json:"address"` // address:port, or *:port for a node port: the addresses differ from node to node
	Kind    string `json:"kind"`    // ClusterIP, LoadBalancerIP, ExternalIP or NodePort
}

// LostFrontend is a frontend that the port should have, but another Service owns.
type LostFrontend struct {
	Frontend
	Owner string `json:"owner"` // namespace/name; empty if no Service may own it
	// Reason is a stable code: APIServersAddress, ProbedAddress, OwnersClusterIP, OwnersLoadBalancerIP, OwnersNodePort,
	// OwnerIsOlder or OwnersNameIsFirst.
	Reason  string `json:"reason"`
	Message string `json:"message"` // the reason as a sentence
}

// Traffic is what happens to new connections of some clients to some frontends.
type Traffic struct {
	// To is ClusterIP, or external: every other kind of frontend; or loopback, where node ports on loopback addresses are
	// served or refused by a feature gate, and where somebody asks for one. It is address for Port.Address.
	To string `json:"to"`
	// From says whose connections these are. It is "everybody", unless externalTrafficPolicy Local makes a difference:
	// then those of this node and of pods come from inside, all others from outside. In a family in which the proxy does
	// not recognize pods, pods are outside too: the message says so and why, and the source of connections from inside is
	// masqueraded, not keptForPods. Connections to loopback come from this node.
	From      string   `json:"from"`
	Frontends []string `json:"frontends"` // their addresses, never null
	Outcome   string   `json:"outcome"`   // balance, refuse or drop; of loopback also unserved: the proxy has no part in it
	Message   string   `json:"message"`   // the outcome as a sentence
	// Choice is cluster or local: where the port lists the endpoints, or why there are none. It is empty for Port.Address.
	Choice string `json:"choice"`
	// Source is which source address the endpoint sees: kept, the client's own; masqueraded, one of this node; or
	// keptForPods, the former for pods and the latter for this node. Empty if nothing arrives, and for the ClusterIP
	// unless all its connections are masqueraded: there it depends not on the Service, but on which clients the proxy
	// takes for pods.
	Source string `json:"source,omitempty"`
}

// Choice is a set of endpoints, the tier they form, and the reason.
type Choice struct {
	Endpoints []string `json:"endpoints"` // address:port, never null
	// Listed is how many of the endpoints the text lists; 0: all.
	Listed  int    `json:"-"`
	Tier    string `json:"tier"`    // the topology key that won, forNodes, forZones, node or all; empty without endpoints
	Reason  string `json:"reason"`  // a stable code
	Message string `json:"message"` // the reason as a sentence
	// Shares say how this node's connections are split, by topology key; one entry if they are not split; never null.
	// Slots is how many of all draws lead to each endpoint; never null.
	Shares []Share        `json:"shares"`
	Slots  map[string]int `json:"slots"`
}

// Tier is a group of endpoints that a client tries together.
type Tier struct {
	Endpoints []string `json:"endpoints"` // address:port, never empty
}

// Share is a part of a node's connections.
type Share struct {
	Key       string  `json:"key"`             // the topology key, or the tier of a choice that is not split
	Value     string  `json:"value,omitempty"` // this node's, of that key
	Share     float64 `json:"share"`           // from 0 to 1
	Endpoints int     `json:"endpoints"`       // how many have the value
	Used      int     `json:"used"`            // to how many of them something of this part goes from this node
}

// Load is what endpoints expect from all nodes together, as planned. Loads are multiples of the mean.
type Load struct {
	MaxLoad float64 `json:"maxLoad"`
	// Clients are the Services whose ready endpoints are the clients; empty, never null, if each Node is a client, as its
	// labels say.
	Clients   []string                `json:"clients"`
	Endpoints map[string]EndpointLoad `json:"endpoints"` // by address:port; never null
	Message   string                  `json:"message"`   // what the bound prevents, as a sentence; empty if nothing can be used
	Demand    string                  `json:"demand"`    // whose connections were reckoned with, as a sentence; likewise
	// DemandSource is where that is from: labels, clients or measured. Measured has the details of the latter.
	DemandSource string    `json:"demandSource"`
	Measured     *Measured `json:"measured,omitempty"`
	// Assumed says in a sentence what would change if demand were assumed; AssumedWouldGive is what the busiest endpoint
	// would get then, as a multiple of the mean. Empty if demand is assumed.
	Assumed          string  `json:"assumed,omitempty"`
	AssumedWouldGive float64 `json:"assumedWouldGive,omitempty"`
}

// Measured is the measured demand of a Service.
type Measured struct {
	Since                time.Time          `json:"observedAt"` // when that was found out
	NodesReporting       int                `json:"nodesReporting"`
	Nodes                int                `json:"nodesTotal"`
	ConnectionsPerMinute uint64             `json:"connectionsPerMinute"`
	Zones                map[string]float64 `json:"zones"` // what the nodes of each ask, of 1
}

// EndpointLoad is what one endpoint expects with the bound, and what it would expect without it.
type EndpointLoad struct {
	Bounded   float64 `json:"bounded"`
	Unbounded float64 `json:"unbounded"`
}

// Excluded is an endpoint that is not used, and why.
type Excluded struct {
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`  // a stable code
	Message  string `json:"message"` // the reason as a sentence
}

// UnusedSlice is an EndpointSlice whose endpoints, or some of their addresses, are not used, and why.
type UnusedSlice struct {
	Slice     string `json:"slice"` // namespace/name
	Endpoints int    `json:"endpoints"`
	// Reason is a stable code: SliceOfNames, SliceOfHeadless, SliceOfOtherFamily, SliceWithoutPorts, SliceOfOtherPorts or LaterAddresses.
	Reason  string `json:"reason"`
	Message string `json:"message"` // the reason as a sentence
}

// HealthCheck is what this node answers to load balancers that ask on the Service's healthCheckNodePort.
type HealthCheck struct {
	NodePort int `json:"nodePort"`
	// LocalEndpoints is the number of addresses on this node that have a ready endpoint of any port of the Service, in
	// this family. If it is zero, the answer is to send nothing here.
	LocalEndpoints int `json:"localEndpoints"`
}
