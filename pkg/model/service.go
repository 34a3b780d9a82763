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

// Service is what the proxy keeps of a v1 Service that it serves. Services without a ClusterIP (headless, ExternalName)
// never become one.
type Service struct {
	Name    ObjectName
	Created time.Time // decides between two Services that claim one frontend: the older one owns it

	ClusterIPs []netip.Addr // at most one a family
	Ports      []ServicePort

	// InternalTrafficLocal is internalTrafficPolicy: Local. It governs the ClusterIP.
	InternalTrafficLocal bool
	// ExternalTrafficLocal is externalTrafficPolicy: Local on a Service that is reachable from outside by its type.
	ExternalTrafficLocal bool
	// ExternalFamilies are the families in which some port has an address that is dialled from outside the cluster: a node
	// port, an external IP or a load balancer's. They decide which endpoints must be computed (KEP-2086).
	ExternalFamilies []Family

	// AffinityTimeout is how long a client is remembered after its newest connection; zero without session affinity.
	AffinityTimeout time.Duration

	Topology policy.Topology
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

// Frontends returns the addresses on which a port can be dialled in a family.
func (s *Service) Frontends(port ServicePort, family Family) []Frontend {
	addr, ok := s.ClusterIP(family)
	if !ok {
		return nil
	}
	return []Frontend{{Addr: addr, Protocol: port.Protocol, Port: port.Port}}
}

// PortID returns the identity of a port in a family.
func (s *Service) PortID(port ServicePort, family Family) PortID {
	return PortID{Service: s.Name, Port: port.Name, Protocol: port.Protocol, Family: family}
}
