//go:build linux

package conntrackgc

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Class is the reason why an entry stays in the table or is deleted.
type Class string

// The classes. Those of the last two groups are stale.
const (
	Foreign         Class = "Foreign"         // translated by another program, in another conntrack zone, or not translated
	Established     Class = "Established"     // it has a reply and is not closed
	EndpointAllowed Class = "EndpointAllowed" // its endpoint may serve its client
	EndpointActive  Class = "EndpointActive"  // its endpoint was not removed; it may be too new for the snapshot
	ClientUnknown   Class = "ClientUnknown"   // the origin of its client could not be determined
	NotChanged      Class = "NotChanged"      // UDP: its frontend did not change since the last scan

	StaleUnreplied Class = "StaleUnreplied" // it has no reply, and its endpoint was removed
	StaleClosed    Class = "StaleClosed"    // closed, and its endpoint was removed: a client that reuses the port would be refused

	EndpointNotAllowed Class = "EndpointNotAllowed" // UDP: its endpoint may not serve its client
	FrontendRemoved    Class = "FrontendRemoved"    // UDP: its frontend or its node port address is no longer served
	PredatesEndpoints  Class = "PredatesEndpoints"  // UDP: it is not translated, because there was no endpoint when it began
)

// IsStale reports whether entries of the class are deleted.
func (c Class) IsStale() bool {
	return c == StaleUnreplied || c == StaleClosed || c == EndpointNotAllowed || c == FrontendRemoved || c == PredatesEndpoints
}

// StaleEntryWindow is how long TCP and SCTP connections are scanned after an endpoint was removed: as long as a Linux
// client retransmits its SYN, and at least as long as conntrack keeps a closed TCP connection.
const StaleEntryWindow = 127 * time.Second

// classifier is the state by which entries are classified.
type classifier struct {
	now      time.Time
	snapshot *serviceindex.Snapshot
	index    *serviceindex.Index // has the removed endpoints and frontends
	isLocal  selection.IsLocal
	// lastScanned is the number of the last sync after which UDP flows were scanned; 0 before the first scan.
	lastScanned uint64
}

// inStartupWindow reports whether endpoints may have been removed without being recorded.
func (c *classifier) inStartupWindow() bool {
	return c.now.Sub(c.snapshot.RemovalsRecordedSince) < StaleEntryWindow
}

// classify returns the class of an entry. If the entry is stale and deleted, the client's next packet is evaluated by
// the rules as if it were the first.
func (c *classifier) classify(e *conntrack.Entry) (Class, error) {
	if e.Protocol == model.UDP {
		return c.classifyUDP(e)
	}
	return c.classifyConnection(e)
}

// classifyUDP classifies a UDP flow. Only flows to frontends that changed since the last scan may be stale. Another
// proxy, or none, may have served them before, so it does not matter which program translated a flow.
func (c *classifier) classifyUDP(e *conntrack.Entry) (Class, error) {
	frontend := c.index.ChangedFrontend(c.snapshot, e.OrigDst(), c.lastScanned)
	switch {
	case frontend == nil && c.lastScanned == 0 && serviceindex.IsOwnNAT(e): // its frontend was removed while no proxy ran
		return FrontendRemoved, nil
	case frontend == nil:
		return NotChanged, nil
	}
	isTranslated := e.ReplySrc() != e.OrigDst()
	if frontend.IsNodePort() {
		if class, err := c.classifyNodePort(frontend, e, isTranslated); class != "" {
			return class, err
		}
	}
	switch isAllowed, err := frontend.Allows(e.ReplySrc(), e.OrigSrc().Addr(), c.snapshot.Scope, c.isLocal); {
	case err != nil:
		return ClientUnknown, err
	case isAllowed:
		return EndpointAllowed, nil
	case e.Status&conntrack.SeenReply != 0 && frontend.KeepsEstablished(e.ReplySrc()):
		return Established, nil
	case isTranslated:
		return EndpointNotAllowed, nil
	}
	// If no endpoint serves the frontend, a process on this machine may reply. Other zones belong to other programs: OVS
	// keeps entries in its own zones that are never translated there.
	if e.Zone == 0 && frontend.IsServed() {
		return PredatesEndpoints, nil
	}
	return Foreign, nil
}

// classifyNodePort classifies a flow to the port number of a node port; it returns "" if the class depends on the
// allowed endpoints. At an address that serves node ports, the flow belongs to the Service. At any other address it
// belongs to the Service only if one of the Service's endpoints replies: then the address served node ports earlier, or
// another proxy served them there. At any address, another program may have translated the flow if its reply source
// never was an endpoint. At the start, not all former endpoints are known.
func (c *classifier) classifyNodePort(frontend *serviceindex.Frontend, e *conntrack.Entry, isTranslated bool) (Class, error) {
	isToEndpoint := isTranslated && (serviceindex.IsOwnNAT(e) || c.index.HadEndpoint(frontend, e.ReplySrc()))
	if isTranslated && !isToEndpoint && c.lastScanned > 0 {
		return Foreign, nil
	}
	switch isServed, err := c.snapshot.Scope.ServesNodePorts(e.OrigDst().Addr(), c.isLocal); {
	case err != nil:
		return ClientUnknown, err
	case isServed:
		return "", nil
	case isToEndpoint:
		return FrontendRemoved, nil
	}
	return Foreign, nil
}

// classifyConnection classifies a TCP or SCTP connection. One that has a reply and is not closed always stays.
func (c *classifier) classifyConnection(e *conntrack.Entry) (Class, error) {
	if class := c.classifyByEndpoint(e); !class.IsStale() {
		return class, nil
	}
	if frontend := c.snapshot.Lookup(e.Protocol, e.OrigDst()); frontend != nil {
		isAllowed, err := frontend.Allows(e.ReplySrc(), e.OrigSrc().Addr(), c.snapshot.Scope, c.isLocal)
		switch {
		case err != nil:
			return ClientUnknown, err
		case isAllowed:
			return EndpointAllowed, nil
		}
	}
	return c.classifyByEndpoint(e), nil
}

// classifyByEndpoint classifies without looking up the frontend. If the class is stale, the endpoint may still be
// allowed for the frontend: classifyConnection checks that.
func (c *classifier) classifyByEndpoint(e *conntrack.Entry) Class {
	isReplied := e.Status&conntrack.SeenReply != 0
	switch {
	case !serviceindex.IsOwnNAT(e):
		return Foreign
	case isReplied && !isClosed(e):
		return Established
	}
	if !c.index.Removed(serviceindex.Endpoint{Protocol: e.Protocol, Addr: e.ReplySrc()}) && !c.inStartupWindow() {
		return EndpointActive
	}
	if isReplied {
		return StaleClosed
	}
	return StaleUnreplied
}

// isClosed reports whether a connection is closed, or is being reopened in the entry of a closed one: an SCTP
// association keeps its ports, and INIT does not create a new entry.
func isClosed(e *conntrack.Entry) bool {
	switch e.Protocol {
	case model.TCP:
		return e.State == conntrack.TCPClose || e.State == conntrack.TCPTimeWait
	case model.SCTP:
		return e.State == conntrack.SCTPClosed || e.State == conntrack.SCTPCookieWait
	case model.UDP:
	}
	return false
}

// query is a conntrack query of a scan.
type query struct {
	filter conntrack.Filter
	// scansReplied is set if the query reads all replied connections, to find closed ones.
	scansReplied bool
}

// isUDP reports whether the query is for UDP flows. Other queries have no protocol filter.
func (q *query) isUDP() bool { return q.filter.Protocol == model.UDP }

// udpQueries returns the query for the UDP flows of some families.
func udpQueries(families []model.Family) []query {
	filter := conntrack.Filter{Protocol: model.UDP}
	switch len(families) {
	case 0:
		return nil
	case 1:
		filter.Family = conntrack.Only(families[0])
	}
	return []query{{filter: filter}}
}

// Conntrack status bits of the queries.
const (
	replied    = conntrack.DestinationNAT | conntrack.SeenReply
	translated = conntrack.DestinationNAT
)

// connectionQueries returns the queries for TCP and SCTP connections after endpoints at some addresses were removed.
// For a few IPv4 addresses the kernel selects all entries with these reply sources. Otherwise it selects unreplied
// entries and, if a scan of closed ones is due, replied entries. While removed endpoints are not fully known, only
// unreplied entries are read.
//
// The number of entries that a query reads is not limited: every connection to an address that does not reply adds one,
// and stale ones may be anywhere among them. The longer a dump takes, the longer the cooldown after it.
func connectionQueries(addrs []netip.Addr, isIncomplete, isClosedDue bool) []query {
	if isIncomplete {
		return []query{{filter: conntrack.Filter{Status: translated, Mask: replied}}}
	}
	byFamily := map[model.Family][]netip.Addr{}
	for _, addr := range addrs {
		byFamily[model.FamilyOf(addr)] = append(byFamily[model.FamilyOf(addr)], addr)
	}
	var queries []query
	for _, family := range model.Families {
		removed, families := byFamily[family], conntrack.Only(family)
		switch {
		case len(removed) == 0:
		case family == model.IPv4 && len(removed) <= conntrack.MaxFilteredReplySrcs:
			queries = append(queries, query{filter: conntrack.Filter{Family: families, Status: translated, Mask: translated, ReplySrcs: removed}})
		default:
			queries = append(queries, query{filter: conntrack.Filter{Family: families, Status: translated, Mask: replied}})
			if isClosedDue {
				queries = append(queries, query{filter: conntrack.Filter{Family: families, Status: replied, Mask: replied}, scansReplied: true})
			}
		}
	}
	return queries
}
