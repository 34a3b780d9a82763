package neighbours_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// portmap is the CNI plugin for host ports, with iptables or nftables.
type portmap struct{ backend string }

// call calls the plugin for a pod that serves on a host port, as a container runtime does after the plugin that created
// the pod's link.
func (p portmap) call(m *machine, operation string, pod *fabric.Pod, port uint16) {
	t := m.testbed.t
	t.Helper()
	type mapping struct {
		HostPort      uint16 `json:"hostPort"`
		ContainerPort uint16 `json:"containerPort"`
		Protocol      string `json:"protocol"`
	}
	var mappings []mapping
	for _, network := range networks {
		mappings = append(mappings, mapping{port, podPort, network})
	}
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": "portmap", "backend": p.backend,
		"capabilities":  map[string]bool{"portMappings": true},
		"runtimeConfig": map[string]any{"portMappings": mappings},
		"prevResult": map[string]any{"cniVersion": "1.0.0", "ips": []map[string]string{
			{"address": pod.IPv4.String() + "/24"}, {"address": pod.IPv6.String() + "/64"},
		}},
	})
	must.Succeed(t, err)
	command := m.inDebian().command(programs.Path(binaries.CNI, "portmap")) // the mount namespace has iptables
	command.Stdin = strings.NewReader(string(config))
	command.Env = append(os.Environ(), "CNI_COMMAND="+operation, "CNI_CONTAINERID="+pod.Name, "CNI_IFNAME=eth0",
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), pod.FD()), "CNI_PATH=/nonexistent")
	_, err = m.Run(command)
	must.Succeed(t, err)
}

// backends are the plugin's backends, and the client that a host port's container sees for a pod of its node. With
// iptables the plugin masquerades for all neighbours of the container, with nftables only for the container itself.
var backends = map[string]source{"iptables": node, "nftables": client}

// TestPortmap covers host ports with the number of a ClusterIP's port, and node ports on all addresses.
func TestPortmap(t *testing.T) {
	t.Parallel()
	for backend, sees := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			plugin := portmap{backend}
			testNeighbour(t, neighbour{
				flags: []string{"--nodeport-addresses", "all"},
				start: func(m *machine) {
					m.hosted = m.testbed.addServer(m, "hosted-on-"+m.Name)
					plugin.call(m, "ADD", m.hosted, servicePort)
				},
				update: func(m *machine) { plugin.call(m, "ADD", m.testbed.addServer(m, "another-on-"+m.Name), servicePort+1) },
				restart: func(m *machine) {
					plugin.call(m, "DEL", m.hosted, servicePort)
					plugin.call(m, "ADD", m.hosted, servicePort)
				},
				check: func(tb *testbed) {
					tb.expect("a host port", tb.hostPortChecks(servicePort, "hosted-on-node-1", sees)...)
				},
			})
		})
	}
}

// hostPortChecks returns checks of connections to a host port of the first node. pod is the source that the server sees for
// a pod of the node.
func (tb *testbed) hostPortChecks(port uint16, server string, podSees source) []check {
	var checks []check
	for _, to := range addrPorts(port, tb.nodes[0].IPv4, tb.nodes[0].IPv6) {
		checks = append(checks, check{tb.client.Namespace, to, cell{[]string{server}, podSees}},
			check{tb.outside, to, cell{[]string{server}, client}}, check{tb.nodes[0].Namespace, to, cell{[]string{server}, node}})
	}
	return checks
}

// TestAHostPortThatIsANodePortToo checks that the program that started last serves the port, also after restarts. The
// Service still serves all its other frontends.
func TestAHostPortThatIsANodePortToo(t *testing.T) {
	t.Parallel()
	for backend, sees := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			plugin := portmap{backend}
			nodePortChecks := func(tb *testbed) []check {
				var checks []check
				for _, to := range addrPorts(nearApp.nodePort(), tb.nodes[0].IPv4, tb.nodes[0].IPv6) {
					for _, from := range []*fabric.Namespace{tb.client.Namespace, tb.outside, tb.nodes[0].Namespace} {
						checks = append(checks, check{from, to, cell{onlyNear, node}})
					}
				}
				return checks
			}
			t.Run("the proxy started last", func(t *testing.T) {
				t.Parallel()
				tb := newTestbed(t, "--nodeport-addresses", "all")
				first := tb.nodes[0]
				hosted := tb.addServer(first, "hosted")
				plugin.call(first, "ADD", hosted, nearApp.nodePort())
				first.startProxy()
				tb.expect("at first", nodePortChecks(tb)...)
				plugin.call(first, "DEL", hosted, nearApp.nodePort())
				plugin.call(first, "ADD", hosted, nearApp.nodePort())
				tb.expect("after the pod was recreated", nodePortChecks(tb)...)
				first.restartProxy()
				tb.expect("after a restart of the proxy", nodePortChecks(tb)...)
			})
			t.Run("the host port was added last", func(t *testing.T) {
				t.Parallel()
				tb := newTestbed(t, "--nodeport-addresses", "all")
				first := tb.nodes[0]
				hosted := tb.addServer(first, "hosted")
				first.startProxy()
				plugin.call(first, "ADD", hosted, nearApp.nodePort())
				tb.expect("at first", tb.hostPortChecks(nearApp.nodePort(), "hosted", sees)...)
				first.restartProxy()
				tb.expect("after a restart of the proxy", tb.hostPortChecks(nearApp.nodePort(), "hosted", sees)...)
				plugin.call(first, "DEL", hosted, nearApp.nodePort())
				tb.expect("after the pod was removed", nodePortChecks(tb)...)
			})
		})
	}
}
