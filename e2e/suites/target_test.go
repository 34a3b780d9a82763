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

// target is what a client dials.
type target struct {
	network string // tcp or udp
	address string // host:port
}

func (t target) String() string { return t.network + " " + t.address }

// isIPv6 says whether an address, with or without a port, is one of IPv6.
func isIPv6(address string) bool {
	if parsed, err := netip.ParseAddr(address); err == nil {
		return parsed.Is6()
	}
	parsed, err := netip.ParseAddrPort(address)
	return err == nil && parsed.Addr().Is6()
}

// overTCP is an address at a port.
func overTCP(address string, port int32) target {
	return target{network: "tcp", address: net.JoinHostPort(address, strconv.Itoa(int(port)))}
}

// overUDP is the same over UDP.
func (t target) overUDP() target { return target{network: "udp", address: t.address} }

// clusterIPs are a Service's ClusterIPs at its port, one for each family that it has.
func clusterIPs(service *corev1.Service) []target {
	var all []target
	for _, address := range service.Spec.ClusterIPs {
		all = append(all, overTCP(address, servicePort))
	}
	return all
}

// nodePorts are a node's addresses at a Service's node port, one for each family that both have.
func nodePorts(service *corev1.Service, on node) []target {
	var all []target
	for _, address := range on.addresses {
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

// bothProtocols are targets over TCP, and the same over UDP. It is for a Service that has not changed yet: of many
// datagrams one is sent from a port that another was sent from a minute ago, and that flow may stay with an endpoint
// that serves, though new ones may not go there any more. What becomes of flows is in udp_test.go.
func bothProtocols(tcp []target) []target {
	all := append([]target{}, tcp...)
	for _, t := range tcp {
		all = append(all, t.overUDP())
	}
	return all
}

// hostName is a Service's name as pods dial it.
func hostName(service *corev1.Service) string {
	return strings.Join([]string{service.Name, service.Namespace, "svc", "cluster.local"}, ".")
}

// addressOf is a probe's address in the family of a target.
func (p probe) addressOf(to target) string {
	for _, address := range p.addresses {
		if isIPv6(address) == isIPv6(to.address) {
			return address
		}
	}
	return fmt.Sprintf("(%s has no address for %s)", p, to)
}
