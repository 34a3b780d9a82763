package explain

import "time"

// PortReport explains one Service port in one family on one node.
//
// Its JSON names are an interface: scripts read them.
type PortReport struct {
	Node string `json:"node,omitempty"`
	// Alike are the other nodes that decide the same; nil if there are none, or if not all nodes are explained.
	Alike    *Alike `json:"alike,omitempty"`
	Service  string `json:"service"`  // namespace/name; empty for an address of no Service
	Port     string `json:"port"`     // the port's name, often empty
	Number   int    `json:"number"`   // the port that clients dial, except for the node port
	Protocol string `json:"protocol"` // TCP, UDP or SCTP; empty for the addresses of a headless Service
	Family   string `json:"family"`   // IPv4 or IPv6
	// Address and Protocols are set if the dialled address:port leads to no Service port over these protocols, but
	// matches a rule. Service is then the one with the address as its ClusterIP; Port and Protocol are empty.
	Address   string   `json:"address,omitempty"`
	Protocols []string `json:"protocols,omitempty"`
	// Name is the name that clients of a headless Service look up, without the cluster's domain; empty for all others.
	Name string `json:"name,omitempty"`

	// Frontends are the frontends of this port, the ClusterIP first; empty if other Services own them all, never null.
	// LostFrontends are the ones that the port should also have, but another Service owns.
	Frontends     []Frontend     `json:"frontends"`
	LostFrontends []LostFrontend `json:"lost,omitempty"`

	// Outcome is what happens to a new connection to the ClusterIP: balance, refuse or drop; or lost, if another
	// Service owns the ClusterIP on this port. For a headless Service it is the DNS response: answer, empty or refuse;
	// after refuse the cluster's DNS responds. Message is the same as a sentence.
	Outcome string `json:"outcome"`
	Message string `json:"message"`
	// Traffic describes connections to the owned frontends, separately for clients that are treated differently; never
	// null.
	Traffic []Traffic `json:"traffic"`

	// Cluster are the endpoints for traffic that no policy keeps on the node. Local are those for traffic that
	// internalTrafficPolicy or externalTrafficPolicy keeps there; nil without such a policy.
	Cluster Choice  `json:"cluster"`
	Local   *Choice `json:"local,omitempty"`

	// NextTiers are the endpoints that xDS clients, which choose endpoints themselves, fail over to while the endpoints
	// for the ClusterIP do not answer: tier by tier, in the order of the topology keys. It is empty if there is no
	// further tier.
	NextTiers []Tier `json:"nextTiers,omitempty"`

	// TopologySource is the source of other nodes' labels, one of model.TopologyResources, if any such label affects
	// the Service; empty if none does.
	TopologySource string `json:"nodesFrom,omitempty"`
	// Load is how a load bound distributes all nodes' connections; nil without a bound, and while not all Nodes are
	// known.
	Load *Load `json:"load,omitempty"`

	// Excluded lists the endpoints that no choice contains; never null. IsCondensed reports whether some entries stand
	// for several endpoints.
	Excluded    []Excluded `json:"excluded"`
	IsCondensed bool       `json:"-"`
	// UnusedSlices are the Service's EndpointSlices that have no effect on this port, at most 20, and those some of
	// whose addresses are ignored.
	UnusedSlices []UnusedSlice `json:"unusedSlices,omitempty"`

	// AllowedSources are the prefixes whose clients may dial the LoadBalancerIPs: spec.loadBalancerSourceRanges, and,
	// if this node is in one of them, the LoadBalancerIPs themselves. Other clients get no response there; the other
	// frontends are open to all. If it is empty, so are the LoadBalancerIPs.
	AllowedSources []string `json:"allowedSources,omitempty"`
	// HealthCheck is the response to load balancers about the Service; nil without a healthCheckNodePort.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// AffinitySeconds is how long a client keeps its endpoint after its newest connection; zero without session
	// affinity. It has one endpoint for all traffic of the same choice, on all frontends.
	AffinitySeconds int `json:"affinitySeconds,omitempty"`
	// Rejected is set if the node's kernel does something else, because it rejects this version of the Service; nil if
	// it accepted this version, or if no running proxy was queried.
	Rejected *Rejection `json:"refused,omitempty"`
	// Warnings are sentences about settings of the Service without effect, and about probable mistakes.
	Warnings []string `json:"warnings,omitempty"`
}

// Alike are nodes that decide the same as the explained node.
type Alike struct {
	Nodes []string `json:"nodes"` // sorted, never empty
	// Differences is a sentence about what differs on each of these nodes, such as the endpoints on the node itself;
	// empty if only the node's name does.
	Differences string `json:"but,omitempty"`
}

// Frontend is an address and port that clients dial.
type Frontend struct {
	Address string `json:"address"` // address:port, or *:port for a node port: its addresses differ from node to node
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
	// To is ClusterIP; external for every other kind of frontend; or loopback, if node ports on loopback addresses are
	// served or refused by a feature gate, or if the query dials one. It is address for PortReport.Address.
	To string `json:"to"`
	// From are the clients of these connections. It is "everybody", unless externalTrafficPolicy Local makes a
	// difference: then this node and pods are inside, all others outside. In a family in which the proxy does not
	// recognize pods, pods are outside too. The message then has the reason, and the source of connections from inside
	// is masqueraded, not keptForPods. Connections to loopback come from this node.
	From      string   `json:"from"`
	Frontends []string `json:"frontends"` // their addresses, never null
	Outcome   string   `json:"outcome"`   // balance, refuse or drop; for loopback also unserved: not by the proxy
	Message   string   `json:"message"`   // the outcome as a sentence
	// Choice is cluster or local: the choice with the endpoints, or with the reason why there are none. It is empty for
	// PortReport.Address.
	Choice string `json:"choice"`
	// Source is the source address that the endpoint sees: kept, the client's own; masqueraded, one of this node; or
	// keptForPods, kept for pods and masqueraded for this node. It is empty if nothing arrives, and for the
	// ClusterIP unless all its connections are masqueraded: there it depends not on the Service, but on which clients
	// the proxy recognizes as pods.
	Source string `json:"source,omitempty"`
}

// Choice is a set of endpoints, the tier they form, and the reason.
type Choice struct {
	Endpoints []string `json:"endpoints"` // address:port, never null
	// Listed is how many of the endpoints the text lists; 0 means all.
	Listed  int    `json:"-"`
	Tier    string `json:"tier"`    // the matching key, forNodes, forZones, node or all; empty without endpoints
	Reason  string `json:"reason"`  // a stable code
	Message string `json:"message"` // the reason as a sentence
	// Shares are how this node's connections are split, by topology key; one entry if they are not split; never null.
	// Slots is the number of slots of each endpoint; never null.
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
	Value     string  `json:"value,omitempty"` // this node's value of that key
	Share     float64 `json:"share"`           // from 0 to 1
	Endpoints int     `json:"endpoints"`       // number of endpoints with the value
	Used      int     `json:"used"`            // number of those that get connections of this share from this node
}

// Load is the planned load of endpoints from all nodes together. Loads are multiples of the mean.
type Load struct {
	MaxLoad float64 `json:"maxLoad"`
	// Clients are the Services whose ready endpoints are the clients; empty, never null, if each Node is a client, with
	// the weight of its label.
	Clients   []string                `json:"clients"`
	Endpoints map[string]EndpointLoad `json:"endpoints"` // by address:port; never null
	Message   string                  `json:"message"`   // a sentence about the bound; empty without usable endpoints
	Demand    string                  `json:"demand"`    // the demand of the plan, as a sentence; empty without usable endpoints
	// DemandSource is the source of the demand: labels, clients or measured. Measured has its details in the last case.
	DemandSource string    `json:"demandSource"`
	Measured     *Measured `json:"measured,omitempty"`
	// WaitingSince is when a newer measurement began to wait for the publisher's budget; absent if none is known to wait.
	WaitingSince *time.Time `json:"waitingSince,omitempty"`
	// Assumed is a sentence about what would change with default demand. BusiestIfAssumed is the load of the busiest
	// endpoint then, as a multiple of the mean. Both are empty if default demand is used.
	Assumed          string  `json:"assumed,omitempty"`
	BusiestIfAssumed float64 `json:"assumedWouldGive,omitempty"`
}

// Measured is the measured demand of a Service.
type Measured struct {
	ObservedAt           time.Time          `json:"observedAt"` // when it was measured
	NodesReporting       int                `json:"nodesReporting"`
	Nodes                int                `json:"nodesTotal"`
	ConnectionsPerMinute uint64             `json:"connectionsPerMinute"`
	Zones                map[string]float64 `json:"zones"` // the share of the demand of each zone's nodes, from 0 to 1
	// OpenConnections is the same for open connections; absent if they are distributed like new ones.
	OpenConnections map[string]float64 `json:"openConnections,omitempty"`
	// AssumedZones are the zones with a proxy that never reported, sorted: they have at least their assumed demand.
	AssumedZones []string `json:"assumedZones,omitempty"`
	// Averaged is set if the demand changed to and fro with the plans made for it.
	Averaged bool `json:"averaged,omitempty"`
}

// EndpointLoad is the expected load of one endpoint with the bound, and without it.
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
	// Reason is a stable code: SliceOfNames, SliceOfHeadless, SliceOfOtherFamily, SliceWithoutPorts, SliceOfOtherPorts
	// or LaterAddresses.
	Reason  string `json:"reason"`
	Message string `json:"message"` // the reason as a sentence
}

// HealthCheck is this node's response to load balancers on the Service's healthCheckNodePort.
type HealthCheck struct {
	NodePort int `json:"nodePort"`
	// LocalEndpoints is the number of addresses on this node that have a ready endpoint of any port of the Service, in
	// this family. If it is zero, the health check fails, and load balancers send nothing here.
	LocalEndpoints int `json:"localEndpoints"`
}
