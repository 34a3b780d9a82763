package packets_test

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// servicePort is the port that clients dial, podPort the one on which pods serve.
const (
	servicePort = 80
	podPort     = 8080
)

// app is a Service and its endpoints. Its number is the last byte of its addresses.
type app struct {
	name   string
	number byte
}

// web is the Service that most tests dial.
var web = app{name: "web", number: 10}

// servedPrefixes contain the external addresses of Services. The cluster IPs are inside the fabric's ranges.
var servedPrefixes = []netip.Prefix{
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:0:e::/64"), // external IPs
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:0:b::/64"), // load balancers
}

// addr returns the address of a frontend of the Service. A node port has no address of its own.
func (a app) addr(kind model.FrontendKind, family model.Family) netip.Addr {
	last := func(prefix string) netip.Addr {
		bytes := netip.MustParseAddr(prefix).AsSlice()
		bytes[len(bytes)-1] = a.number
		addr, _ := netip.AddrFromSlice(bytes)
		return addr
	}
	isIPv4 := family == model.IPv4
	switch {
	case kind == model.ClusterIP && isIPv4:
		return last("10.96.0.0")
	case kind == model.ClusterIP:
		return last("fd00:96::")
	case kind == model.ExternalIP && isIPv4:
		return last("203.0.113.0")
	case kind == model.ExternalIP:
		return last("2001:db8:0:e::")
	case isIPv4:
		return last("198.51.100.0")
	}
	return last("2001:db8:0:b::")
}

func (a app) addrs(kind model.FrontendKind) []netip.Addr {
	return []netip.Addr{a.addr(kind, model.IPv4), a.addr(kind, model.IPv6)}
}

func (a app) nodePort() uint16 { return 30000 + uint16(a.number) }

func (a app) objectName() model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: a.name}
}

// service returns the change that applies the Service in both families, with all protocols on one port number. It has
// only a ClusterIP.
func (a app) service(edit ...func(*model.Service)) model.Change {
	s := &model.Service{
		Name:       a.objectName(),
		ClusterIPs: a.addrs(model.ClusterIP),
		Ports: []model.ServicePort{
			{Name: "tcp", Protocol: model.TCP, Port: servicePort},
			{Name: "udp", Protocol: model.UDP, Port: servicePort},
			{Name: "sctp", Protocol: model.SCTP, Port: servicePort},
		},
	}
	for _, e := range edit {
		e(s)
	}
	return model.Change{Services: map[model.ObjectName]*model.Service{s.Name: s}}
}

// withNodePorts sets the node port of every port of the Service; the protocols share the number.
func (a app) withNodePorts(s *model.Service) {
	for i := range s.Ports {
		s.Ports[i].NodePort = a.nodePort()
	}
}

func (a app) withExternalIPs(s *model.Service) { s.ExternalIPs = a.addrs(model.ExternalIP) }

func (a app) withLoadBalancer(s *model.Service) { s.LoadBalancerIPs = a.addrs(model.LoadBalancerIP) }

// withEverything adds a frontend of every kind to the Service.
func (a app) withEverything(s *model.Service) {
	a.withNodePorts(s)
	a.withExternalIPs(s)
	a.withLoadBalancer(s)
}

func internalLocal(s *model.Service) { s.InternalTrafficLocal = true }

func externalLocal(s *model.Service) { s.ExternalTrafficLocal = true }

func affinity(timeout time.Duration) func(*model.Service) {
	return func(s *model.Service) { s.AffinityTimeout = timeout }
}

func topologyKeys(keys ...policy.Key) func(*model.Service) {
	return func(s *model.Service) { s.Topology.Keys = keys }
}

func sourceRanges(prefixes ...string) func(*model.Service) {
	return func(s *model.Service) {
		for _, prefix := range prefixes {
			s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(prefix))
		}
	}
}

// deletion returns the change that deletes the Service and keeps its EndpointSlices.
func (a app) deletion() model.Change {
	return model.Change{Services: map[model.ObjectName]*model.Service{a.objectName(): nil}}
}

// endpoints returns the change that makes exactly the given pods the Service's ready endpoints.
func (a app) endpoints(pods ...*pod) model.Change {
	return a.slices(pods, model.Endpoint{Ready: true, Serving: true})
}

// slices returns the change that applies EndpointSlices with the pods as the Service's endpoints, all with the same
// conditions.
func (a app) slices(pods []*pod, conditions model.Endpoint) model.Change {
	change := model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for _, family := range model.Families {
		slice := &model.EndpointSlice{
			Name:    model.ObjectName{Namespace: "default", Name: a.name + "-" + family.String()},
			Service: a.objectName(),
			Family:  family,
			Ports: []model.SlicePort{
				{Name: "tcp", Protocol: model.TCP, Port: podPort},
				{Name: "udp", Protocol: model.UDP, Port: podPort},
				{Name: "sctp", Protocol: model.SCTP, Port: podPort},
			},
		}
		for _, p := range pods {
			endpoint := conditions
			endpoint.Node, endpoint.Zone = p.Node.Name, p.zone
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addrOf(p.Namespace, family), Endpoint: endpoint})
		}
		change.Slices[slice.Name] = slice
	}
	return change
}

// service and endpoints return the changes that apply web and its endpoints.
func service(edit ...func(*model.Service)) model.Change { return web.service(edit...) }

func endpoints(pods ...*pod) model.Change { return web.endpoints(pods...) }
