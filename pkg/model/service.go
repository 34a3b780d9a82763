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

// Service is what the proxy keeps of a v1 Service that it serves: one with a ClusterIP, or a headless one with topology
// keys, if this proxy answers DNS. ExternalName Services never become one.
type Service struct {
	Name    ObjectName
	Created time.Time // decides between two Services that claim one frontend: the older one owns it

	// IsHeadless: clients find its endpoints by DNS. It has no frontend, and topology is its only setting.
	IsHeadless bool

	ClusterIPs []netip.Addr // at most one a family
	Ports      []ServicePort

	// ExternalIPs are spec.externalIPs; LoadBalancerIPs are the addresses in status.loadBalancer.ingress in mode VIP.
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	// SourceRanges are spec.loadBalancerSourceRanges: who may dial the LoadBalancerIPs. No two overlap. A family without
	// a range is open to every client.
	SourceRanges []netip.Prefix
	// HealthCheckNodePort is where a load balancer asks whether this node has endpoints; zero without
	// externalTrafficPolicy: Local on a LoadBalancer.
	HealthCheckNodePort uint16

	// InternalTrafficLocal is internalTrafficPolicy: Local. It governs the ClusterIP.
	InternalTrafficLocal bool
	// ExternalTrafficLocal is externalTrafficPolicy: Local on a Service that is reachable from outside by its type. It
	// governs every other frontend.
	ExternalTrafficLocal bool

	// AffinityTimeout is how long a client is remembered after its newest connection; zero without session affinity.
	AffinityTimeout time.Duration

	Topology policy.Topology

	// Findings say which parts of the object have no effect, while the rest is served.
	Findings []Finding
}

// ServicePort is one entry of spec.ports.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // zero if there is none
}

// PortID names one Service port in one family: the unit that is decided, explained and programmed.
type PortID struct {
	Service  ObjectName
	Port     string // the port's name, often empty
	Protocol Protocol
	Family   Family
}

// ClusterIP returns the Service's ClusterIP of a family.
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
