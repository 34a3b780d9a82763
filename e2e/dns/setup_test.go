// Package dns_test queries the real proxy as the README describes: a DNS cache on the node queries the proxy first and
// the cluster's DNS second. Both are CoreDNS; the cache is the older version that NodeLocal DNSCache contains. All of
// them watch a real API server.
//
// To test another record, see dns_test.go; outage_test.go has the failures.
package dns_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// These are the addresses of the proxy's DNS and metrics, and the port of the node's cache and of the cluster's DNS.
const (
	proxyAddress   = "127.0.0.1:10053"
	metricsAddress = "127.0.0.1:10249"
	dnsPort        = "53"
)

// kubernetesCorefile configures the cluster's DNS.
const kubernetesCorefile = `.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        ttl 5
    }
}
`

// otherZones is the rest of the cache's Corefile.
const otherZones = `in-addr.arpa:53 ip6.arpa:53 {
    bind 127.0.0.1 ::1
    errors
    forward . %s {
        force_tcp
    }
}
`

// cacheCorefile returns the Corefile of the node's cache, with the lines of the README.md of manifests/dns.
func cacheCorefile(t testing.TB, clusterDNS netip.Addr) string {
	t.Helper()
	readme, err := os.ReadFile("../../manifests/dns/README.md")
	must.Succeed(t, err)
	_, lines, found := strings.Cut(string(readme), "```\n   cluster.local:53 {")
	lines, _, ended := strings.Cut(lines, "```")
	if !found || !ended {
		t.Fatal("the README has no block for cluster.local")
	}
	return "cluster.local:53 {" + strings.NewReplacer(
		"127.0.0.1:10053", proxyAddress, "__PILLAR__CLUSTER__DNS__", clusterDNS.String(), "__PILLAR__LOCAL__DNS__", "127.0.0.1",
		"__PILLAR__DNS__SERVER__", "::1",
	).Replace(lines) + fmt.Sprintf(otherZones, clusterDNS)
}

// withoutCache removes the block of the cache, so that a test sees each response.
func withoutCache(corefile string) string {
	before, block, _ := strings.Cut(corefile, "cache {")
	_, after, _ := strings.Cut(block, "}")
	return before + after
}

// setup is a node in zone a, with the proxy, a cache and a client, and the cluster's DNS on another machine.
type setup struct {
	t     testing.TB
	api   *site.Site
	node  *fabric.Node
	other *fabric.Namespace
	proxy *site.Process
	cache *site.Process
	// clusterDNS is CoreDNS with the plugin kubernetes.
	clusterDNS *site.Process

	args            []string // of the proxy
	clusterCorefile string
}

// newSetup returns a setup whose cache is the CoreDNS version of NodeLocal DNSCache.
func newSetup(t testing.TB) *setup {
	t.Helper()
	return newSetupWith(t, binaries.NodeDNS)
}

// newSetupWith returns a setup with the given CoreDNS as the node's cache.
func newSetupWith(t testing.TB, cache binaries.Module) *setup {
	t.Helper()
	network := fabrictest.New(t)
	node, err := network.AddNode("node-1")
	must.Succeed(t, err)
	host, err := network.AddHost("outside", node)
	must.Succeed(t, err)
	s := &setup{t: t, node: node, other: host.Namespace}
	s.api = site.New(t, site.Config{Namespace: s.other})
	s.api.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelHostname: "node-1"},
	}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: node.IPv4.String()}}}})
	config, err := s.api.ClientConfig("proxy", "system:masters")
	must.Succeed(t, err)
	kubeconfig := site.Kubeconfig(t, config)
	s.args = []string{"run", "--node", "node-1", "--kubeconfig", kubeconfig, "--dns-bind-address", proxyAddress}
	s.clusterCorefile = fmt.Sprintf(kubernetesCorefile, kubeconfig)
	s.clusterDNS = s.startCoreDNS(binaries.CoreDNS, s.other, s.clusterCorefile)
	s.startProxy()
	s.cache = s.startCoreDNS(cache, s.node.Namespace, withoutCache(cacheCorefile(t, s.other.IPv4)))
	return s
}

func (s *setup) startProxy() {
	s.t.Helper()
	s.proxy = site.Start(s.t, s.node.Namespace, exec.Command(site.Program(s.t, "proxy"), s.args...))
	s.proxy.WaitFor(s.t, "the first sync", func() error {
		if !strings.Contains(s.proxy.Log.String(), "the first sync is in the kernel") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

func (s *setup) startCoreDNS(module binaries.Module, machine *fabric.Namespace, corefile string) *site.Process {
	s.t.Helper()
	programs, err := binaries.Build(s.t.Context(), os.Stderr, module)
	must.Succeed(s.t, err)
	path := filepath.Join(s.t.TempDir(), "Corefile")
	must.Succeed(s.t, os.WriteFile(path, []byte(corefile), 0o600))
	process := site.Start(s.t, machine, exec.Command(onlyProgram(s.t, programs.Folder(module)), "-conf", path))
	process.WaitFor(s.t, "a response of "+machine.Name+"'s DNS", func() error {
		_, err := s.query(machine, net.JoinHostPort("127.0.0.1", dnsPort), "udp", "A", "nobody.default.svc.cluster.local.")
		return err
	})
	return process
}

// onlyProgram returns the program of a module that has only one.
func onlyProgram(t testing.TB, folder string) string {
	t.Helper()
	programs, err := filepath.Glob(filepath.Join(folder, "*"))
	must.Succeed(t, err)
	if len(programs) != 1 {
		t.Fatalf("%s contains %q, want one program", folder, programs)
	}
	return programs[0]
}

// query queries a DNS server from a machine.
func (s *setup) query(machine *fabric.Namespace, server, network, typ, name string) (*miekg.Msg, error) {
	conn, err := machine.Dial(network, server, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	query := new(miekg.Msg).SetQuestion(name, miekg.StringToType[typ])
	query.SetEdns0(1232, false)
	return exchange(conn, query)
}

func exchange(conn net.Conn, query *miekg.Msg) (*miekg.Msg, error) {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	client := &miekg.Conn{Conn: conn, UDPSize: 1232}
	if err := client.WriteMsg(query); err != nil {
		return nil, err
	}
	answer, err := client.ReadMsg()
	if err == nil && answer.Id != query.Id {
		err = fmt.Errorf("response to query %d has ID %d", query.Id, answer.Id)
	}
	return answer, err
}

// queryProxy, queryCluster and queryCache query the servers of a test.
func (s *setup) queryProxy(typ, name string) (*miekg.Msg, error) {
	return s.query(s.node.Namespace, proxyAddress, "tcp", typ, name)
}

func (s *setup) queryCluster(typ, name string) (*miekg.Msg, error) {
	return s.query(s.node.Namespace, net.JoinHostPort(s.other.IPv4.String(), dnsPort), "tcp", typ, name)
}

func (s *setup) queryCache(typ, name string) (*miekg.Msg, error) {
	return s.query(s.node.Namespace, net.JoinHostPort("127.0.0.1", dnsPort), "tcp", typ, name)
}

// headless is a Service of namespace default. Each endpoint is "ADDRESS ZONE" and optional attributes: "unready",
// "terminating", "name=HOSTNAME", "pod=NAME".
type headless struct {
	name      string
	keys      string // empty for none
	ports     []corev1.ServicePort
	endpoints []string
}

func (h headless) fullName() string { return h.name + ".default.svc.cluster.local." }

func (h headless) service() *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: h.name, Namespace: metav1.NamespaceDefault, Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: h.ports},
	}
	if h.keys != "" {
		service.Annotations[policy.TopologyKeysAnnotation] = h.keys
	}
	return service
}

// slices returns the EndpointSlices that the EndpointSlice controller would write: one for each family.
func (h headless) slices() []*discoveryv1.EndpointSlice {
	byFamily := map[discoveryv1.AddressType]*discoveryv1.EndpointSlice{}
	for _, text := range h.endpoints {
		words := strings.Fields(text)
		family := discoveryv1.AddressTypeIPv4
		if netip.MustParseAddr(words[0]).Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		if byFamily[family] == nil {
			byFamily[family] = h.slice(family)
		}
		byFamily[family].Endpoints = append(byFamily[family].Endpoints, endpointOf(words))
	}
	var all []*discoveryv1.EndpointSlice
	for _, slice := range byFamily {
		all = append(all, slice)
	}
	return all
}

func (h headless) slice(family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.name + "-" + strings.ToLower(string(family)), Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: h.name, corev1.IsHeadlessService: ""},
		},
		AddressType: family,
	}
	for _, port := range h.ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new(port.Name), Protocol: new(port.Protocol), Port: new(port.Port + 8000),
		})
	}
	return slice
}

func endpointOf(words []string) discoveryv1.Endpoint {
	endpoint := discoveryv1.Endpoint{
		Addresses: words[:1], Zone: new(words[1]),
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}
	for _, word := range words[2:] {
		switch word {
		case "unready":
			endpoint.Conditions.Ready, endpoint.Conditions.Serving = new(false), new(false)
		case "terminating":
			endpoint.Conditions.Ready, endpoint.Conditions.Terminating = new(false), new(true)
		default:
			if pod, isPod := strings.CutPrefix(word, "pod="); isPod {
				endpoint.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: pod}
				continue
			}
			endpoint.Hostname = new(strings.TrimPrefix(word, "name="))
		}
	}
	return endpoint
}

func (s *setup) create(all ...headless) {
	s.t.Helper()
	for _, h := range all {
		s.api.Create(s.t, h.service())
		for _, slice := range h.slices() {
			s.api.Create(s.t, slice)
		}
	}
}

// updateEndpoints gives a Service other endpoints, of the families that it had.
func (s *setup) updateEndpoints(h headless) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	slices := s.api.Admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	for _, slice := range h.slices() {
		_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
		must.Succeed(s.t, err)
	}
}

// answerText returns a response's code and its sorted records, without the values that servers may choose: the time to
// live and the case of the domain.
func answerText(answer *miekg.Msg) string {
	words := []string{}
	for _, record := range answer.Answer {
		words = append(words, recordText(record))
	}
	slices.Sort(words)
	return strings.Join(append([]string{miekg.RcodeToString[answer.Rcode]}, words...), ", ")
}

func recordText(record miekg.RR) string {
	text := strings.TrimPrefix(record.String(), record.Header().String())
	return miekg.TypeToString[record.Header().Rrtype] + " " + strings.ToLower(strings.ReplaceAll(text, "\t", " "))
}

// additionalText returns the additional records of a response: addresses of targets, each with its name.
func additionalText(answer *miekg.Msg) string {
	words := []string{}
	for _, record := range answer.Extra {
		if header := record.Header(); header.Rrtype != miekg.TypeOPT {
			words = append(words, "; "+strings.ToLower(header.Name)+" "+recordText(record))
		}
	}
	slices.Sort(words)
	return strings.Join(words, "")
}

// waitFor waits until answerText of a server's response equals want.
func (s *setup) waitFor(what, want string, query func(typ, name string) (*miekg.Msg, error), typ, name string) {
	s.t.Helper()
	wait.Equal(s.t, what+": "+typ+" "+name, want, func() string {
		answer, err := query(typ, name)
		if err != nil {
			return err.Error()
		}
		return answerText(answer)
	})
}

// requestCount returns the number of queries with the given result that the proxy has counted.
func (s *setup) requestCount(result string) float64 {
	s.t.Helper()
	count, err := s.proxy.Metric(metricsAddress, "vicinity_dns_requests_total", fmt.Sprintf("result=%q", result))
	must.Succeed(s.t, err)
	return count
}
