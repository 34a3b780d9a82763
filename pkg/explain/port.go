package explain

// Port is the story of one Service port in one family on one node.
//
// Its JSON names are an interface: scripts read them.
type Port struct {
	Node      string   `json:"node,omitempty"`
	Service   string   `json:"service"`   // namespace/name
	Port      string   `json:"port"`      // the port's name, often empty
	Number    int      `json:"number"`    // the port that clients dial
	Protocol  string   `json:"protocol"`  // TCP, UDP or SCTP
	Family    string   `json:"family"`    // IPv4 or IPv6
	Frontends []string `json:"frontends"` // what clients dial, address:port; empty if others own it all, never null

	// Outcome is what happens to a new connection to the ClusterIP: balance, refuse or drop. Message is the same as a sentence.
	Outcome string `json:"outcome"`
	Message string `json:"message"`

	// Cluster holds the endpoints for traffic that no policy keeps on the node; Local those for traffic that
	// internalTrafficPolicy or externalTrafficPolicy keeps there, nil without such a policy.
	Cluster Choice  `json:"cluster"`
	Local   *Choice `json:"local,omitempty"`

	// Excluded lists the endpoints that no choice contains; never null.
	Excluded []Excluded `json:"excluded"`

	// AffinitySeconds is how long a client keeps its endpoint after its newest connection; zero without session affinity.
	AffinitySeconds int `json:"affinitySeconds,omitempty"`
	// Warnings are sentences about what the Service asks for and does not get.
	Warnings []string `json:"warnings,omitempty"`
}

// Choice is a set of endpoints, the tier they form, and the reason.
type Choice struct {
	Endpoints []string `json:"endpoints"` // address:port, never null
	Tier      string   `json:"tier"`      // the topology key that won, forNodes, forZones, node or all; empty without endpoints
	Reason    string   `json:"reason"`    // a stable code
	Message   string   `json:"message"`   // the reason as a sentence
}

// Excluded is an endpoint that is not used, and why.
type Excluded struct {
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`  // a stable code
	Message  string `json:"message"` // the reason as a sentence
}
