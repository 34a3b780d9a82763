package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// endpointsAt returns the slices that make addresses, and only them, the Service's ready endpoints. They are on no node.
func (a app) endpointsAt(addrs ...netip.Addr) model.Change {
	change := a.endpoints()
	for _, slice := range change.Slices {
		for _, addr := range addrs {
			if model.FamilyOf(addr) == slice.Family {
				slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: model.Endpoint{Ready: true, Serving: true}})
			}
		}
	}
	return change
}

// TestAnEndpointThatIsAClusterIPIsNotUsed: a connection that was sent there would be translated no second time. With no
// other endpoint clients are refused at once, whatever they dial, and whichever object came last.
func TestAnEndpointThatIsAClusterIPIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	chained, everywhere := app{"chained", 11}, web.paths(r.nodes[0], allKinds...)
	clusterIPs := chained.addrs(model.ClusterIP)
	r.apply(service(web.withEverything).Then(web.endpointsAt(clusterIPs...)).Then(chained.service()).Then(chained.endpoints(r.near)))
	expect(t, "only another Service's ClusterIPs", r.clients(), everywhere, refused)
	r.apply(endpoints(r.far))
	expect(t, "an endpoint", r.clients(), everywhere, answeredBy("far"))
	r.apply(web.endpointsAt(web.addrs(model.ClusterIP)...))
	expect(t, "only the Service's own ClusterIPs", r.clients(), everywhere, refused)
	r.apply(web.endpointsAt(append(clusterIPs, r.far.IPv4, r.far.IPv6)...))
	for range 8 {
		expect(t, "another Service's ClusterIPs beside an endpoint", r.clients(), everywhere, answeredBy("far"))
	}
	r.apply(web.endpointsAt(clusterIPs...).Then(chained.gone()).Then(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6)))
	expect(t, "only addresses of a ServiceCIDR", r.clients(), everywhere, refused)
	r.apply(serviceCIDR().Then(chained.service()))
	expect(t, "only what is a ClusterIP again", r.clients(), everywhere, refused)
}

// TestAnEndpointThatIsAnExternalAddressOfAnotherServiceIsUsed: there may be a machine that has it.
func TestAnEndpointThatIsAnExternalAddressOfAnotherServiceIsUsed(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	other := app{"other", 11}
	external := append(other.addrs(model.ExternalIP), other.addrs(model.LoadBalancerIP)...)
	machine := r.machineWith("machine", external...)
	r.serveOn(machine, podPort, external...)
	r.apply(other.service(other.withEverything).Then(other.endpoints(r.near)))
	r.apply(service().Then(web.endpointsAt(external...)))
	expect(t, "another Service's external addresses", r.clients(), paths, answeredBy("machine"))
	expect(t, "the other Service", r.clients(), other.paths(r.nodes[0], model.ExternalIP, model.LoadBalancerIP), answeredBy("near"))
}
