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
	t := m.town.t
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
			beside(t, neighbour{
				flags: []string{"--nodeport-addresses", "all"},
				start: func(m *machine) {
					m.hosted = m.town.addServer(m, "hosted-on-"+m.Name)
					plugin.call(m, "ADD", m.hosted, servicePort)
				},
				update: func(m *machine) { plugin.call(m, "ADD", m.town.addServer(m, "another-on-"+m.Name), servicePort+1) },
				restart: func(m *machine) {
					plugin.call(m, "DEL", m.hosted, servicePort)
					plugin.call(m, "ADD", m.hosted, servicePort)
				},
				promise: func(here *town) {
					here.expect("a host port", here.toHostPort(servicePort, "hosted-on-node-1", sees)...)
				},
			})
		})
	}
}

// toHostPort returns checks of connections to a host port of the first node. pod is the source that the server sees for
// a pod of the node.
func (s *town) toHostPort(port uint16, answers string, pod source) []check {
	var checks []check
	for _, to := range at(port, s.nodes[0].IPv4, s.nodes[0].IPv6) {
		checks = append(checks, check{s.client.Namespace, to, cell{[]string{answers}, pod}},
			check{s.outside, to, cell{[]string{answers}, client}}, check{s.nodes[0].Namespace, to, cell{[]string{answers}, node}})
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
			nodePort := func(here *town) []check {
				var checks []check
				for _, to := range at(nearApp.nodePort(), here.nodes[0].IPv4, here.nodes[0].IPv6) {
					for _, from := range []*fabric.Namespace{here.client.Namespace, here.outside, here.nodes[0].Namespace} {
						checks = append(checks, check{from, to, cell{onlyNear, node}})
					}
				}
				return checks
			}
			t.Run("the proxy started last", func(t *testing.T) {
				t.Parallel()
				here := newTown(t, "--nodeport-addresses", "all")
				first := here.nodes[0]
				hosted := here.addServer(first, "hosted")
				plugin.call(first, "ADD", hosted, nearApp.nodePort())
				first.startProxy()
				here.expect("at first", nodePort(here)...)
				plugin.call(first, "DEL", hosted, nearApp.nodePort())
				plugin.call(first, "ADD", hosted, nearApp.nodePort())
				here.expect("after the pod was recreated", nodePort(here)...)
				first.restartProxy()
				here.expect("after a restart of the proxy", nodePort(here)...)
			})
			t.Run("the host port was added last", func(t *testing.T) {
				t.Parallel()
				here := newTown(t, "--nodeport-addresses", "all")
				first := here.nodes[0]
				hosted := here.addServer(first, "hosted")
				first.startProxy()
				plugin.call(first, "ADD", hosted, nearApp.nodePort())
				here.expect("at first", here.toHostPort(nearApp.nodePort(), "hosted", sees)...)
				first.restartProxy()
				here.expect("after a restart of the proxy", here.toHostPort(nearApp.nodePort(), "hosted", sees)...)
				plugin.call(first, "DEL", hosted, nearApp.nodePort())
				here.expect("after the pod was removed", nodePort(here)...)
			})
		})
	}
}
