package neighbours_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// overlay is the flannel network of the nodes.
type overlay struct {
	files string
	subnets
}

// subnets is flannel's store of the pod addresses of each node.
type subnets interface {
	// configure writes the configuration that the flannel of each node reads when it starts.
	configure(here *testbed, config []byte)
	// arguments returns the arguments of a node's flannel.
	arguments(m *machine) []string
}

// flannelReady is the address at which flannel reports whether its rules exist.
const flannelReady = "127.0.0.1:8081"

// etcdSubnets stores the pod addresses in etcd at an address.
type etcdSubnets struct{ address string }

// newEtcdSubnets starts etcd on a separate machine.
func newEtcdSubnets(tb *testbed) subnets {
	t := tb.t
	t.Helper()
	store, err := tb.fabric.AddHost("etcd", tb.nodes[0].Node)
	must.Succeed(t, err)
	address := store.IPv4.String() + ":2379"
	etcd := site.Start(t, store.Namespace, exec.Command(programs.Path(binaries.Etcd, "etcd"), "--data-dir", t.TempDir(),
		"--listen-client-urls=http://"+address, "--advertise-client-urls=http://"+address, "--log-level=warn"))
	etcd.WaitFor(t, "etcd is ready", func() error {
		_, err := site.Page(store.Namespace, address, "/readyz")
		return err
	})
	return etcdSubnets{address}
}

func (e etcdSubnets) configure(tb *testbed, config []byte) {
	t := tb.t
	t.Helper()
	put, err := json.Marshal(map[string][]byte{"key": []byte("/coreos.com/network/config"), "value": config})
	must.Succeed(t, err)
	httpClient := site.Client(tb.nodes[0].Namespace)
	response, err := httpClient.Post("http://"+e.address+"/v3/kv/put", "application/json", strings.NewReader(string(put)))
	must.Succeed(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("etcd rejected flannel's configuration: %s", response.Status)
	}
}

func (e etcdSubnets) arguments(*machine) []string {
	return []string{"--etcd-endpoints=http://" + e.address}
}

// nodeSubnets stores the pod addresses in annotations of Nodes, as the manifests of flannel do. The addresses of a Node
// are its spec.podCIDRs.
type nodeSubnets struct{ kubeconfig, config string }

// newNodeSubnets starts an API server with the two nodes. It runs on a separate machine.
func newNodeSubnets(tb *testbed) subnets {
	t := tb.t
	t.Helper()
	server, err := tb.fabric.AddHost("api", tb.nodes[0].Node)
	must.Succeed(t, err)
	api := site.New(t, site.Config{Namespace: server.Namespace})
	for _, node := range tb.nodes {
		tb.createNode(api, node)
	}
	return nodeSubnets{site.Kubeconfig(t, api.AdminConfig()), filepath.Join(t.TempDir(), "net-conf.json")}
}

func (n nodeSubnets) configure(tb *testbed, config []byte) {
	tb.t.Helper()
	must.Succeed(tb.t, os.WriteFile(n.config, config, 0o600))
}

func (n nodeSubnets) arguments(*machine) []string {
	return []string{"--kube-subnet-mgr", "--kubeconfig-file=" + n.kubeconfig, "--net-config-path=" + n.config}
}

// masqueradeBy sets whether flannel masquerades by iptables or by nftables after its next start.
func (o *overlay) masqueradeBy(tb *testbed, nftables bool) {
	tb.t.Helper()
	config, err := json.Marshal(map[string]any{
		"EnableIPv6": true, "EnableNFTables": nftables, "Backend": map[string]string{"Type": "vxlan"},
		"Network": fabric.PodsIPv4, "IPv6Network": fabric.PodsIPv6, "IPv6SubnetLen": 64,
	})
	must.Succeed(tb.t, err)
	o.configure(tb, config)
}

// start starts flannel on a node, with the addresses of its pods.
func (o *overlay) start(m *machine) {
	t := m.testbed.t
	t.Helper()
	file := filepath.Join(o.files, m.Name)
	if _, err := os.Stat(file); err != nil {
		ipv4, ipv6 := m.PodCIDRs()
		text := fmt.Sprintf("FLANNEL_NETWORK=%s\nFLANNEL_SUBNET=%s\nFLANNEL_IPV6_NETWORK=%s\nFLANNEL_IPV6_SUBNET=%s\n",
			fabric.PodsIPv4, ipv4, fabric.PodsIPv6, ipv6)
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	m.removePodRoutes()
	ready := func() error {
		_, err := site.Page(m.Namespace, flannelReady, "/readyz")
		return err
	}
	arguments := []string{
		"NODE_NAME=" + m.Name, programs.Path(binaries.Flannel, "flanneld"), "--ip-masq", "--subnet-file=" + file,
		"--healthz-ip=127.0.0.1", "--healthz-port=8081",
	}
	m.service = m.inDebian().start("flannel", ready, "env", append(arguments, o.arguments(m)...)...)
}

// removePodRoutes removes the fabric's own routes to the pods of other nodes, because flannel adds its own.
func (m *machine) removePodRoutes() {
	m.testbed.t.Helper()
	must.Succeed(m.testbed.t, m.Do(func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, route := range routes {
			for _, other := range m.testbed.nodes {
				if route.Gw.Equal(other.IPv4.AsSlice()) || route.Gw.Equal(other.IPv6.AsSlice()) {
					err = errors.Join(err, netlink.RouteDel(&route))
				}
			}
		}
		return err
	}))
}

// TestFlannel uses VXLAN, and masquerading by iptables or by nftables. The update switches to the other one.
func TestFlannel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		nftables bool
		subnets  func(*testbed) subnets
	}{
		"iptables":                   {false, newEtcdSubnets},
		"nftables":                   {true, newEtcdSubnets},
		"nftables, subnets of Nodes": {true, newNodeSubnets},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restart := func(m *machine) {
				m.stop()
				m.testbed.overlay.start(m)
			}
			testNeighbour(t, neighbour{
				start: func(m *machine) {
					tb := m.testbed
					if tb.overlay == nil {
						tb.overlay = &overlay{tb.t.TempDir(), test.subnets(tb)}
						tb.overlay.masqueradeBy(tb, test.nftables)
						_, err := tb.outside.Serve(servicePort)
						must.Succeed(t, err)
					}
					tb.overlay.start(m)
				},
				update: func(m *machine) {
					m.testbed.overlay.masqueradeBy(m.testbed, !test.nftables)
					restart(m)
				},
				restart: restart,
				check:   (*testbed).expectOverlay,
			})
		})
	}
}

// expectOverlay checks that pods of different nodes reach each other through flannel's link, and that packets to other
// destinations have their node's address as the source.
func (tb *testbed) expectOverlay() {
	tb.t.Helper()
	first := tb.nodes[0]
	for _, link := range []string{"flannel.1", "flannel-v6.1"} {
		before := first.sentPackets(link)
		wait.Success(tb.t, "packets pass "+link, func() error { // routes are added shortly after the rules
			for _, to := range addrPorts(podPort, tb.far.IPv4, tb.far.IPv6) {
				if _, err := tb.client.Get(to); err != nil {
					return err
				}
			}
			if first.sentPackets(link) == before {
				return fmt.Errorf("the number of sent packets is still %s", before)
			}
			return nil
		})
	}
	for _, to := range addrPorts(servicePort, tb.outside.IPv4, tb.outside.IPv6) {
		tb.expect("outside the overlay", check{tb.client.Namespace, to, cell{[]string{tb.outside.Name}, node}})
	}
}

// sentPackets returns the number of packets that a link of the node has sent.
func (m *machine) sentPackets(link string) string {
	m.testbed.t.Helper()
	return strings.TrimSpace(m.inDebian().run("cat", "/sys/class/net/"+link+"/statistics/tx_packets"))
}
