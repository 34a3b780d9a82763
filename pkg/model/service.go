package model

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// ObjectName is the namespace and name of a namespaced object.
type ObjectName struct {
	Namespace, Name string
}

// String returns namespace/name.
func (n ObjectName) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names by namespace, then name.
func (n ObjectName) Compare(other ObjectName) int {
	return cmp.Or(cmp.Compare(n.Namespace, other.Namespace), cmp.Compare(n.Name, other.Name))
}

// Service is the part of a v1 Service that the proxy uses: one with a ClusterIP or, if this proxy serves DNS, a
// headless one with topology keys. ExternalName Services are never converted.
type Service struct {
	Name    ObjectName
	Created time.Time // decides between Services that claim the same frontend: the oldest owns it

	// IsHeadless is set if clients find the endpoints by DNS. Such a Service has no frontend, and topology is its only
	// setting.
	IsHeadless bool

	ClusterIPs []netip.Addr // at most one a family
	Ports      []ServicePort

	// ExternalIPs are spec.externalIPs; LoadBalancerIPs are the addresses in status.loadBalancer.ingress in mode VIP.
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	// SourceRanges are spec.loadBalancerSourceRanges, the clients that may dial the LoadBalancerIPs. They do not overlap.
	// A family without a range allows every client.
	SourceRanges []netip.Prefix
	// HealthCheckNodePort is the port at which load balancers check whether this node has endpoints. It is zero unless
	// the Service is of type LoadBalancer with externalTrafficPolicy: Local.
	HealthCheckNodePort uint16

	// InternalTrafficLocal is internalTrafficPolicy: Local. It governs the ClusterIP.
	InternalTrafficLocal bool
	// ExternalTrafficLocal is externalTrafficPolicy: Local on a Service that is reachable from outside by its type. It
	// governs every other frontend.
	ExternalTrafficLocal bool

	// AffinityTimeout is the session affinity timeout since a client's newest connection; zero without session affinity.
	AffinityTimeout time.Duration

	Topology policy.Topology

	// Findings are the parts of the object that have no effect, while the rest is served.
	Findings []Finding
}

// ServicePort is one entry of spec.ports.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // zero if there is none
}

// PortID identifies one Service port in one family: the unit that is decided, explained and programmed.
type PortID struct {
	Service  ObjectName
	Port     string // the port's name, often empty
	Protocol Protocol
	Family   Family
}

// ClusterIP returns the Service's ClusterIP in a family, if it has one.
func (s *Service) ClusterIP(family Family) (netip.Addr, bool) {
	for _, addr := range s.ClusterIPs {
		if FamilyOf(addr) == family {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// PortID returns the identity of a port in a family.
func (s *Service) PortID(port ServicePort, family Family) PortID {
	return PortID{Service: s.Name, Port: port.Name, Protocol: port.Protocol, Family: family}
}
