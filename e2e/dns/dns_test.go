package dns_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

var (
	httpPort    = corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}
	dnsUDP      = corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}
	dnsTCP      = corev1.ServicePort{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53}
	unnamedPort = corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: 80}
)

// TestResponsesEqualCoreDNSWithoutPreference checks that the proxy gives CoreDNS's responses for the same objects if
// every endpoint is allowed.
func TestResponsesEqualCoreDNSWithoutPreference(t *testing.T) {
	s := newSetup(t)
	all := []headless{
		{"plain", "*", []corev1.ServicePort{httpPort}, []string{"10.1.0.1 a", "10.1.0.2 b", "10.1.0.3 c"}},
		{"dual", "*", []corev1.ServicePort{httpPort}, []string{"10.1.1.1 a", "fd00:1::1 a", "fd00:1:2::3 b"}},
		{"six", "*", []corev1.ServicePort{httpPort}, []string{"fd00:1::10 a", "fd00:2:: b"}},
		{"many", "*", []corev1.ServicePort{httpPort, dnsUDP, dnsTCP}, []string{"10.1.2.1 a", "10.1.2.2 b name=two"}},
		{"nameless", "*", []corev1.ServicePort{unnamedPort}, []string{"10.1.3.1 a"}},
		{"portless", "*", nil, []string{"10.1.4.1 a", "10.1.4.2 a name=pod-1"}},
		{"set", "*", []corev1.ServicePort{httpPort}, []string{"10.1.5.1 a name=set-0", "10.1.5.2 b name=set-1", "10.1.5.3 c name=set-2"}},
		{"unready", "*", []corev1.ServicePort{httpPort}, []string{"10.1.6.1 a unready", "10.1.6.2 b"}},
		{"leaving", "*", []corev1.ServicePort{httpPort}, []string{"10.1.7.1 a terminating", "10.1.7.2 b"}},
		{"nobody", "*", []corev1.ServicePort{httpPort}, []string{"10.1.8.1 a unready", "10.1.8.2 b terminating"}},
		{"empty", "*", []corev1.ServicePort{httpPort}, nil},
		{"twins", "*", []corev1.ServicePort{httpPort}, []string{"10.1.10.1 a name=one", "fd00:1:10::1 a name=one", "10.1.10.2 b name=one"}},
		{"keyless", "", []corev1.ServicePort{httpPort}, []string{"10.1.9.1 a"}},
	}
	s.create(all...)
	byHand := headless{"by-hand", "*", []corev1.ServicePort{httpPort}, []string{"10.1.11.1 a name=one", "10.1.11.2 b"}}
	s.api.Create(t, byHand.service())
	for _, slice := range byHand.slices() {
		delete(slice.Labels, corev1.IsHeadlessService) // the label is optional
		s.api.Create(t, slice)
	}
	all = append(all, byHand)
	for _, h := range all { // wait until both serve all of them
		if len(h.endpoints) == 0 || h.name == "nobody" {
			continue
		}
		wait.Success(t, "the cluster's DNS and the proxy serve "+h.name, func() error {
			typ := "A"
			if h.name == "six" {
				typ = "AAAA"
			}
			err := hasAnswer(s.queryCluster(typ, h.fullName()))
			if err == nil && h.keys != "" {
				err = hasAnswer(s.queryProxy(typ, h.fullName()))
			}
			return err
		})
	}
	compared, refused := 0, 0
	for _, h := range all {
		for _, name := range namesOf(h) {
			for _, typ := range []string{"A", "AAAA", "SRV", "TXT", "PTR", "MX"} {
				cluster, err := s.queryCluster(typ, name)
				must.Succeed(t, err)
				proxy, err := s.queryProxy(typ, name)
				must.Succeed(t, err)
				cache, err := s.queryCache(typ, name)
				must.Succeed(t, err)
				if proxy.Rcode == miekg.RcodeRefused {
					refused++
				} else if compared++; answerText(proxy)+additionalText(proxy) != answerText(cluster)+additionalText(cluster) {
					t.Errorf("%s %s:\nthe proxy      %s%s\nthe cluster's  %s%s", typ, name, answerText(proxy), additionalText(proxy),
						answerText(cluster), additionalText(cluster))
				}
				if answerText(cache) != answerText(cluster) {
					t.Errorf("%s %s:\nby the cache   %s\nthe cluster's  %s", typ, name, answerText(cache), answerText(cluster))
				}
			}
		}
	}
	t.Logf("%d responses were compared, %d queries were refused", compared, refused)
	if compared < 40 || refused < 40 {
		t.Error("too few responses were compared or refused, want at least 40 of each")
	}
}

func hasAnswer(answer *miekg.Msg, err error) error {
	if err == nil && len(answer.Answer) == 0 {
		err = fmt.Errorf("no answer: %s", answerText(answer))
	}
	return err
}

// namesOf returns names of a Service: its own, those of its ports, and those of its endpoints.
func namesOf(h headless) []string {
	names := []string{
		h.fullName(), strings.ToUpper(h.fullName()), "_x._tcp." + h.fullName(), "x." + h.fullName(),
		"x." + h.name + ".default.pod.cluster.local.",
	}
	for _, port := range append(h.ports, httpPort) {
		if port.Name != "" {
			names = append(names, "_"+port.Name+"._"+strings.ToLower(string(port.Protocol))+"."+h.fullName(), "_"+port.Name+"._sctp."+h.fullName())
		}
	}
	for _, endpoint := range h.endpoints {
		words := strings.Fields(endpoint)
		name := strings.NewReplacer(".", "-", ":", "-").Replace(words[0])
		names = append(names, name+"."+h.fullName())
		reverse, err := miekg.ReverseAddr(words[0])
		if err == nil {
			names = append(names, reverse)
		}
		if len(words) > 2 {
			names = append(names, strings.TrimPrefix(words[2], "name=")+"."+h.fullName())
		}
	}
	return names
}

// TestEndpointPodNames covers --dns-endpoint-pod-names and CoreDNS's endpoint_pod_names.
func TestEndpointPodNames(t *testing.T) {
	s := newSetup(t)
	must.Succeed(t, s.clusterDNS.Stop(wait.Timeout))
	corefile := strings.Replace(s.clusterCorefile, "ttl 5", "ttl 5\n        endpoint_pod_names", 1)
	s.clusterDNS = s.startCoreDNS(binaries.CoreDNS, s.other, corefile)
	must.Succeed(t, s.proxy.Stop(wait.Timeout))
	s.args = append(s.args, "--dns-endpoint-pod-names")
	s.startProxy()
	h := headless{"pods", "*", []corev1.ServicePort{httpPort}, []string{"10.7.0.1 a pod=one", "10.7.0.2 b pod=two name=second", "10.7.0.3 b"}}
	s.create(h)
	const want = "NOERROR, SRV 0 33 8080 10-7-0-3.pods.default.svc.cluster.local., SRV 0 33 8080 one.pods.default.svc.cluster.local., " +
		"SRV 0 33 8080 second.pods.default.svc.cluster.local."
	s.waitFor("the cluster's", want, s.queryCluster, "SRV", "_http._tcp."+h.fullName())
	s.waitFor("the proxy's", want, s.queryProxy, "SRV", "_http._tcp."+h.fullName())
	s.waitFor("the target's address", "NOERROR, A 10.7.0.1", s.queryCache, "A", "one."+h.fullName())
}

// TestClientGetsAddressesOfItsZone also covers clients whose zone has no endpoints, and members that find each other by
// name.
func TestClientGetsAddressesOfItsZone(t *testing.T) {
	s := newSetup(t)
	soft := headless{
		"soft", "topology.kubernetes.io/zone, *", []corev1.ServicePort{httpPort},
		[]string{"10.2.0.1 a name=soft-0", "10.2.0.2 b name=soft-1", "10.2.0.3 a"},
	}
	hard := headless{"hard", "topology.kubernetes.io/zone", []corev1.ServicePort{httpPort}, []string{"10.2.1.1 a", "10.2.1.2 b"}}
	s.create(soft, hard)
	s.waitFor("its own zone", "NOERROR, A 10.2.0.1, A 10.2.0.3", s.queryCache, "A", soft.fullName())
	s.waitFor("its own zone",
		"NOERROR, SRV 0 50 8080 10-2-0-3.soft.default.svc.cluster.local., SRV 0 50 8080 soft-0.soft.default.svc.cluster.local.",
		s.queryCache, "SRV", "_http._tcp."+soft.fullName())
	s.waitFor("its own zone", "NOERROR, A 10.2.1.1", s.queryCache, "A", hard.fullName())
	if services, err := s.proxy.Metric(metricsAddress, "vicinity_dns_services"); err != nil || services != 2 {
		t.Errorf("the metric counts %v Services (%v), want 2", services, err)
	}
	s.waitFor("a member of another zone", "NOERROR, A 10.2.0.2", s.queryCache, "A", "soft-1."+soft.fullName())
	s.waitFor("the name of an address", "NOERROR, PTR soft-1.soft.default.svc.cluster.local.", s.queryCache, "PTR", "2.0.2.10.in-addr.arpa.")

	soft.endpoints = []string{"10.2.0.1 a name=soft-0 unready", "10.2.0.2 b name=soft-1"}
	hard.endpoints = []string{"10.2.1.2 b"}
	s.updateEndpoints(soft)
	s.updateEndpoints(hard)
	s.waitFor("the next zone", "NOERROR, A 10.2.0.2", s.queryCache, "A", soft.fullName())
	s.waitFor("a required key without an endpoint", "NOERROR", s.queryCache, "A", hard.fullName())

	s.api.Kubectl(t, "annotate", "service", "hard", "vicinity.dev/topology-keys-", "--overwrite")
	s.waitFor("without keys the cluster's DNS answers", "NOERROR, A 10.2.1.2", s.queryCache, "A", hard.fullName())
	s.waitFor("without keys the proxy refuses", "REFUSED", s.queryProxy, "A", hard.fullName())
	s.api.Kubectl(t, "annotate", "service", "hard", "vicinity.dev/topology-keys=kubernetes.io/hostname, *")
	s.waitFor("with keys again", "NOERROR, A 10.2.1.2", s.queryProxy, "A", hard.fullName())
	s.api.Kubectl(t, "delete", "service", "soft", "hard")
	s.waitFor("a deleted Service", "REFUSED", s.queryProxy, "A", soft.fullName())
	if s.requestCount("answered") == 0 || s.requestCount("refused") == 0 || s.requestCount("empty") == 0 {
		t.Error("the metrics do not count answered, refused and empty requests")
	}
}

// TestCacheFollowsWithinTTL uses the README's Corefile, with its cache.
func TestCacheFollowsWithinTTL(t *testing.T) {
	s := newSetup(t)
	must.Succeed(t, s.cache.Stop(wait.Timeout))
	s.startCoreDNS(binaries.NodeDNS, s.node.Namespace, cacheCorefile(t, s.other.IPv4))
	near := headless{"near", "topology.kubernetes.io/zone, *", []corev1.ServicePort{httpPort}, []string{"10.4.0.1 a", "10.4.0.2 b"}}
	s.create(near)
	s.waitFor("its own zone", "NOERROR, A 10.4.0.1", s.queryCache, "A", near.fullName())
	near.endpoints = []string{"10.4.0.1 a unready", "10.4.0.2 b"}
	s.updateEndpoints(near)
	s.waitFor("the proxy returns the next zone", "NOERROR, A 10.4.0.2", s.queryProxy, "A", near.fullName())
	began := time.Now()
	s.waitFor("the cache returns the next zone", "NOERROR, A 10.4.0.2", s.queryCache, "A", near.fullName())
	t.Logf("the cache followed after %s; the TTL is 5 s", time.Since(began).Round(time.Millisecond))
}
