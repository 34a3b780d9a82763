package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// dialledAddress is a dialled address and port on a node, and where it leads. The zero value means that nothing is
// dialled.
type dialledAddress struct {
	addr netip.AddrPort
	// frontends are the frontends that are reached, by protocol. The tables look up one with the address first, and
	// then a node port.
	frontends map[model.Protocol]model.Frontend
	// services are the Services that own them, sorted.
	services []model.ObjectName
}

// resolveAddress returns where the address that a query dials leads on the cluster's own node. Loopback leads to a node
// port whether it is served there or not.
func (q Query) resolveAddress(cluster *model.Cluster) dialledAddress {
	if !q.AddrPort.IsValid() {
		return dialledAddress{}
	}
	d := dialledAddress{addr: q.AddrPort, frontends: map[model.Protocol]model.Frontend{}}
	addr := q.AddrPort.Addr()
	for _, protocol := range model.Protocols {
		frontend := model.Frontend{Addr: addr, Protocol: protocol, Port: q.AddrPort.Port()}
		owner, isOwned := cluster.Owner(frontend)
		if !isOwned && (addr.IsLoopback() || cluster.ServesNodePorts(addr)) {
			frontend.Addr = model.AnyAddr(model.FamilyOf(addr))
			owner, isOwned = cluster.Owner(frontend)
		}
		if isOwned {
			d.frontends[protocol] = frontend
			d.services = append(d.services, owner)
		}
	}
	slices.SortFunc(d.services, model.ObjectName.Compare)
	d.services = slices.Compact(d.services)
	return d
}

// reaches reports whether the dialled address leads to a frontend.
func (d dialledAddress) reaches(frontend model.PortFrontend) bool {
	return d.frontends[frontend.Protocol] == frontend.Frontend
}

// reachesPort reports whether the dialled address leads to a frontend of a port.
func (d dialledAddress) reachesPort(decision selection.Decision) bool {
	return slices.ContainsFunc(decision.Frontends, d.reaches)
}

// undefinedPort explains the protocols over which the dialled address leads to no Service port, but matches a rule: a
// port of a ClusterIP that its Service does not define, and an address of a ServiceCIDR that is not a ClusterIP. It
// returns nil if there are no such protocols. services are the Services with this ClusterIP.
func (d dialledAddress) undefinedPort(cluster *model.Cluster, services []model.ObjectName) *PortReport {
	addr := d.addr.Addr()
	if !d.addr.IsValid() || len(d.frontends) == len(model.Protocols) || slices.Contains(cluster.LocalAddrs(), addr) {
		return nil
	}
	ranges := cluster.ServiceCIDRs()
	rangeIndex := slices.IndexFunc(ranges, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
	if len(services) == 0 && rangeIndex < 0 {
		return nil
	}
	port := &PortReport{
		Node: cluster.Self().Name, Number: int(d.addr.Port()), Family: model.FamilyOf(addr).String(), Address: d.addr.String(),
		Frontends: []Frontend{}, Excluded: []Excluded{}, Cluster: describeChoice(selection.Choice{}, nil),
	}
	for _, protocol := range model.Protocols {
		if _, isReached := d.frontends[protocol]; !isReached {
			port.Protocols = append(port.Protocols, protocol.String())
		}
	}
	subject := "New connections to " + port.Address + " over " + enumerate(port.Protocols)
	if len(services) > 0 {
		service := cluster.Service(services[0])
		port.Service, port.Outcome = service.Name.String(), outcomeNames[selection.Refuse]
		port.Message = fmt.Sprintf("%s are refused at once, because %s is the ClusterIP of %s, which has %s.",
			subject, addr, service.Name, portList(service))
	} else {
		port.Outcome = outcomeNames[selection.Drop]
		port.Message = fmt.Sprintf("%s are dropped, because %s is in the ServiceCIDR %s and is the ClusterIP of no Service that this "+
			"proxy serves, unless another program has translated them.", subject, addr, ranges[rangeIndex])
	}
	port.Message += " If the node has the address itself, the proxy does not handle them."
	port.Traffic = []Traffic{{
		To: toAddress, From: fromAll, Frontends: []string{port.Address}, Outcome: port.Outcome, Message: port.Message,
	}}
	return port
}

// enumerate joins words, as in "TCP, UDP and SCTP".
func enumerate(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
