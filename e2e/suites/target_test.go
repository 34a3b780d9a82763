//go:build e2e

package suites

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// target is an address that a client dials.
type target struct {
	network string // tcp or udp
	address string // host:port
}

func (t target) String() string { return t.network + " " + t.address }

// isIPv6 reports whether an address, with or without a port, is an IPv6 address.
func isIPv6(address string) bool {
	if parsed, err := netip.ParseAddr(address); err == nil {
		return parsed.Is6()
	}
	parsed, err := netip.ParseAddrPort(address)
	return err == nil && parsed.Addr().Is6()
}

// overTCP returns the target of an address and port.
func overTCP(address string, port int32) target {
	return target{network: "tcp", address: net.JoinHostPort(address, strconv.Itoa(int(port)))}
}

// overUDP returns the same target over UDP.
func (t target) overUDP() target { return target{network: "udp", address: t.address} }

// clusterIPs returns a Service's ClusterIPs with its port, one for each of its families.
func clusterIPs(service *corev1.Service) []target {
	var all []target
	for _, address := range service.Spec.ClusterIPs {
		all = append(all, overTCP(address, servicePort))
	}
	return all
}

// nodePorts returns a node's addresses with a Service's node port, one for each family that both have.
func nodePorts(service *corev1.Service, n node) []target {
	var all []target
	for _, address := range n.addresses {
		if hasFamilyOf(service, address) {
			all = append(all, overTCP(address, service.Spec.Ports[0].NodePort))
		}
	}
	return all
}

func hasFamilyOf(service *corev1.Service, address string) bool {
	for _, clusterIP := range service.Spec.ClusterIPs {
		if isIPv6(clusterIP) == isIPv6(address) {
			return true
		}
	}
	return false
}

// bothProtocols returns targets over TCP, and the same over UDP. It is for a Service that has not changed yet: among
// many datagrams, some reuse a source port of a minute ago, and that flow may stay with an endpoint that is serving but
// no longer allowed for new flows. udp_test.go tests flows.
func bothProtocols(tcp []target) []target {
	all := append([]target{}, tcp...)
	for _, t := range tcp {
		all = append(all, t.overUDP())
	}
	return all
}

// hostName returns the name by which pods dial a Service.
func hostName(service *corev1.Service) string {
	return strings.Join([]string{service.Name, service.Namespace, "svc", "cluster.local"}, ".")
}

// addressOf returns a test pod's address in the family of a target.
func (p testPod) addressOf(to target) string {
	for _, address := range p.addresses {
		if isIPv6(address) == isIPv6(to.address) {
			return address
		}
	}
	return fmt.Sprintf("(%s has no address for %s)", p, to)
}
