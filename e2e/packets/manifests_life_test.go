package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestServicesOfOtherProxiesAreNotServed checks that a Service loses all its frontends while it is for another proxy or for
// none, and gets them back afterwards.
func TestServicesOfOtherProxiesAreNotServed(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	allPaths := web.paths(m.nodes[0], allKinds...)
	for desc, unserved := range map[string]manifest{
		"a switch to ExternalName": {spec: "type: ExternalName, externalName: example.com"},
		"an ExternalName with the addresses that it had": {
			spec: `type: ExternalName, externalName: example.com, externalIPs: [203.0.113.10], ` + bothFamilies, ingress: vip},
		"a headless Service":         {spec: `type: ClusterIP, externalIPs: [203.0.113.10, "2001:db8:0:e::a"], ` + headless, ingress: vip},
		"the label of another proxy": {label: "service.kubernetes.io/service-proxy-name: other", spec: everything.spec, ingress: vip},
	} {
		m.setService(everything)
		expect(t, "before "+desc, m.clients(), allPaths, servedBy("near"))
		m.setService(unserved)
		expect(t, desc, m.clients(), allPaths, notServed)
	}
	m.setService(manifest{spec: "type: ClusterIP, " + bothFamilies})
	expect(t, "a ClusterIP again", m.clients(), paths, servedBy("near"))
	m.setService(everything)
	expect(t, "everything again", m.clients(), allPaths, servedBy("near"))
}

// TestSlicesOfAHeadlessServiceAreNoEndpoints checks that the label of the EndpointSlice decides, whatever the Service
// is.
func TestSlicesOfAHeadlessServiceAreNoEndpoints(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	allPaths := web.paths(m.nodes[0], allKinds...)
	m.setService(everything)
	for range 2 {
		expect(t, "no label", m.clients(), allPaths, servedBy("near"))
		m.write("slices.yaml", m.slices(`service.kubernetes.io/headless: ""`))
		m.load()
		expect(t, "the label", m.clients(), allPaths, refused)
		m.write("slices.yaml", m.slices(""))
		m.load()
	}
	expect(t, "no label again", m.clients(), allPaths, servedBy("near"))
}

// TestAServiceOfOneFamily checks that a Service of one family has no frontend of any kind in the other family, although
// its manifest has addresses there.
func TestAServiceOfOneFamily(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	allPaths := byFamily(web.paths(m.nodes[0], allKinds...))
	for _, test := range []struct {
		spec          string
		served, other model.Family
	}{{onlyIPv4, model.IPv4, model.IPv6}, {onlyIPv6, model.IPv6, model.IPv4}} {
		m.setService(manifest{spec: balanced + test.spec, ingress: vip})
		expect(t, "only "+test.served.String(), m.clients(), allPaths[test.served], servedBy("near"))
		expect(t, "only "+test.served.String(), m.clients(), allPaths[test.other], notServed)
		m.setService(everything)
		expect(t, "both families", m.clients(), allPaths[test.other], servedBy("near"))
	}
}

// TestALoadBalancerInModeProxyGetsItsPackets checks that packets go to the machine that has the address. In mode VIP,
// or without a mode, the node translates them.
func TestALoadBalancerInModeProxyGetsItsPackets(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	addrs := web.addrs(model.LoadBalancerIP)
	m.machineWith("balancer", addrs...)
	inside, to := []*fabric.Namespace{m.pod, m.node}, pathsTo(servicePort, addrs...)
	otherPaths := web.paths(m.nodes[0], model.ClusterIP, model.NodePort, model.ExternalIP)
	for range 2 {
		m.setService(manifest{spec: everything.spec, ingress: proxied})
		expect(t, "mode Proxy", inside, to, servedBy("balancer"))
		expect(t, "mode Proxy: other frontends", m.clients(), otherPaths, servedBy("near"))
		m.setService(everything)
		expect(t, "mode VIP", m.clients(), to, servedBy("near"))
	}
}

// TestSourceRangesAsTheirOwnersWriteThem has a range inside another one, and all addresses together with a few. The set
// in the kernel must contain them merged, because it ignores a range that contains another one.
func TestSourceRangesAsTheirOwnersWriteThem(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	pods, hosts := []*fabric.Namespace{m.pod}, []*fabric.Namespace{m.node, m.host}
	to := web.paths(m.nodes[0], model.LoadBalancerIP)
	const allPods, allHosts = `10.244.0.0/16, "fd00:244::/32"`, `172.30.0.0/16, "fd00:30::/32"`
	for _, test := range []struct {
		desc, ranges    string
		allowed, barred []*fabric.Namespace
	}{
		{"all pods", allPods, pods, hosts},
		{"all addresses", `0.0.0.0/0, "::/0"`, m.clients(), nil},
		{"a range around another one", `172.30.0.0/30, "fd00:30::/127", ` + allHosts, hosts, pods},
		{"a range around another one, named first", allHosts + `, 172.30.0.0/30, "fd00:30::/127"`, hosts, pods},
		{"all addresses, and a few", allPods + `, 0.0.0.0/0, "::/0", 172.30.0.0/30, "fd00:30::/127"`, m.clients(), nil},
		{"the same range twice, and neighbours",
			`172.30.0.0/17, 172.30.128.0/17, 172.30.0.0/17, "fd00:30::/33", "fd00:30:8000::/33"`, hosts, pods},
	} {
		m.setService(manifest{spec: everything.spec + ", loadBalancerSourceRanges: [" + test.ranges + "]", ingress: vip})
		expect(t, "in the ranges: "+test.desc, test.allowed, to, servedBy("near"))
		expect(t, "not in the ranges: "+test.desc, test.barred, to, timesOut)
	}
}
