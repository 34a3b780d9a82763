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

// Class is why a connection stays in the table, or goes.
type Class string

// The reasons. Those of the last two groups are why an entry is deleted.
const (
	Foreign         Class = "NotOurs"     // another program translated it, or keeps it in a zone of its own, or nobody translated it
	Established     Class = "IsOpen"      // it was answered, and is not closed
	EndpointAllowed Class = "MayAnswer"   // its endpoint may answer its client
	EndpointActive  Class = "HasNotLeft"  // its endpoint did not leave: it comes, and the snapshot does not know it yet
	ClientUnknown   Class = "IsUncertain" // the kernel does not say where the client is
	NotChanged      Class = "NotChanged"  // it is of UDP, and nothing changed about its frontend since the last look

	StaleUnreplied Class = "DialledInVain" // nobody has answered, and its endpoint left
	StaleClosed    Class = "ClosedBehind"  // it is closed, and its endpoint left: it would refuse a client that dials from the same port

	EndpointNotAllowed Class = "MayNotAnswer"   // it is of UDP, and its endpoint may not answer its client
	FrontendRemoved    Class = "NotServedThere" // it is of UDP, and was sent to a frontend or an address that is not served any more
	PredatesEndpoints  Class = "BeganBefore"    // it is of UDP, and nobody translated it: there was no endpoint when it began
)

// IsStale reports whether an entry is deleted for the reason.
func (r Class) IsStale() bool {
	return r == StaleUnreplied || r == StaleClosed || r == EndpointNotAllowed || r == FrontendRemoved || r == PredatesEndpoints
}

// StaleDialWindow is how long dials are looked at after an endpoint left: as long as a Linux client goes on dialling, and at
// least as long as a closed TCP connection is remembered.
const StaleDialWindow = 127 * time.Second

// classifier is what entries are judged by.
type classifier struct {
	now     time.Time
	owners  *serviceindex.Snapshot
	reader  *serviceindex.Index // knows what left
	isLocal selection.IsLocal
	// lastScanned is the number of the last sync after which flows of UDP were looked at; 0 before the first look.
	lastScanned uint64
}

// inStartupWindow reports whether we do not know yet which endpoints left.
func (w *classifier) inStartupWindow() bool {
	return w.now.Sub(w.owners.RemovedKnownSince) < StaleDialWindow
}

// classify decides about an entry. The next packet of a client whose entry is deleted meets the rules as if it were the first.
func (w *classifier) classify(e *conntrack.Entry) (Class, error) {
	if e.Protocol == model.UDP {
		return w.classifyUDP(e)
	}
	return w.classifyDial(e)
}

// classifyUDP decides about a flow of UDP. Only flows to frontends that changed since the last look may go. As another
// proxy may have served them before, or none, it does not matter who translated a flow.
func (w *classifier) classifyUDP(e *conntrack.Entry) (Class, error) {
	owner := w.reader.OwnerOfFlow(w.owners, e.OrigDst(), w.lastScanned)
	switch {
	case owner == nil && w.lastScanned == 0 && serviceindex.IsOwnNAT(e): // its frontend left while no proxy ran
		return FrontendRemoved, nil
	case owner == nil:
		return NotChanged, nil
	}
	isTranslated := e.ReplySrc() != e.OrigDst()
	if owner.IsNodePort() {
		if reason, err := w.classifyNodePort(owner, e, isTranslated); reason != "" {
			return reason, err
		}
	}
	switch mayAnswer, err := owner.Allows(e.ReplySrc(), e.OrigSrc().Addr(), w.owners.Scope, w.isLocal); {
	case err != nil:
		return ClientUnknown, err
	case mayAnswer:
		return EndpointAllowed, nil
	case e.Status&conntrack.SeenReply != 0 && owner.KeepsEstablished(e.ReplySrc()):
		return Established, nil
	case isTranslated:
		return EndpointNotAllowed, nil
	}
	// If no endpoint serves the frontend, perhaps a process of this machine answers. A zone belongs to another program: OVS
	// keeps entries in its own that are never translated there.
	if e.Zone == 0 && owner.IsServed() {
		return PredatesEndpoints, nil
	}
	return Foreign, nil
}

// classifyNodePort decides about a flow to the number of a node port, unless that depends on who may answer. Only at an
// address that serves node ports must it belong to the Service. Anywhere else a flow belongs to the Service if one of its
// endpoints answers: then the address served node ports earlier, or another proxy served them there. At any address another
// program may have translated the flow, if its answerer never was an endpoint. At the start we do not know all that were.
func (w *classifier) classifyNodePort(owner *serviceindex.Frontend, e *conntrack.Entry, isTranslated bool) (Class, error) {
	isOfEndpoint := isTranslated && (serviceindex.IsOwnNAT(e) || w.reader.HadEndpoint(owner, e.ReplySrc()))
	if isTranslated && !isOfEndpoint && w.lastScanned > 0 {
		return Foreign, nil
	}
	switch isServed, err := w.owners.Scope.ServesNodePorts(e.OrigDst().Addr(), w.isLocal); {
	case err != nil:
		return ClientUnknown, err
	case isServed:
		return "", nil
	case isOfEndpoint:
		return FrontendRemoved, nil
	}
	return Foreign, nil
}

// classifyDial decides about a connection of TCP or SCTP. One that was answered and is not closed always stays.
func (w *classifier) classifyDial(e *conntrack.Entry) (Class, error) {
	if reason := w.classifyByEndpoint(e); !reason.IsStale() {
		return reason, nil
	}
	if owner := w.owners.Lookup(e.Protocol, e.OrigDst()); owner != nil {
		mayAnswer, err := owner.Allows(e.ReplySrc(), e.OrigSrc().Addr(), w.owners.Scope, w.isLocal)
		switch {
		case err != nil:
			return ClientUnknown, err
		case mayAnswer:
			return EndpointAllowed, nil
		}
	}
	return w.classifyByEndpoint(e), nil
}

// classifyByEndpoint decides without asking who owns the frontend. If it says that an entry goes, its endpoint may still be one that
// may answer for that frontend: judgeDial finds out.
func (w *classifier) classifyByEndpoint(e *conntrack.Entry) Class {
	isAnswered := e.Status&conntrack.SeenReply != 0
	switch {
	case !serviceindex.IsOwnNAT(e):
		return Foreign
	case isAnswered && !isClosed(e):
		return Established
	}
	if !w.reader.Removed(serviceindex.Endpoint{Protocol: e.Protocol, Addr: e.ReplySrc()}) && !w.inStartupWindow() {
		return EndpointActive
	}
	if isAnswered {
		return StaleClosed
	}
	return StaleUnreplied
}

// isClosed reports whether a connection is over, or begins anew in the entry of one that was: an association of SCTP keeps
// its ports, and INIT does not make a new entry.
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

// query is what a look asks the table for.
type query struct {
	filter conntrack.Filter
	// scansReplied: everything that was answered is read, to find closed connections.
	scansReplied bool
}

// isOfUDP reports whether it is about flows of UDP. No other one is.
func (q *query) isOfUDP() bool { return q.filter.Protocol == model.UDP }

// udpQueries is the question for flows of UDP, in some families.
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

// The status of what is looked for.
const (
	replied    = conntrack.DestinationNAT | conntrack.SeenReply
	translated = conntrack.DestinationNAT
)

// dialQueries returns what is asked after endpoints left at some addresses. For a few IPv4 addresses the kernel finds all
// entries that lead there; else it finds the unanswered ones and, if closed ones are due, the answered ones. As long as we
// do not know which endpoints left, only unanswered ones are read.
//
// All of them are read, however many there are: whoever dials an address that is silent makes one, and those that go may
// be anywhere among them. Looks rest the longer, the longer reading takes.
func dialQueries(addrs []netip.Addr, isUnsure, isClosedDue bool) []query {
	if isUnsure {
		return []query{{filter: conntrack.Filter{Status: translated, Mask: replied}}}
	}
	byFamily := map[model.Family][]netip.Addr{}
	for _, addr := range addrs {
		byFamily[model.FamilyOf(addr)] = append(byFamily[model.FamilyOf(addr)], addr)
	}
	var queries []query
	for _, family := range model.Families {
		there, only := byFamily[family], conntrack.Only(family)
		switch {
		case len(there) == 0:
		case family == model.IPv4 && len(there) <= conntrack.MaxFilteredReplySrcs:
			queries = append(queries, query{filter: conntrack.Filter{Family: only, Status: translated, Mask: translated, ReplySrcs: there}})
		default:
			queries = append(queries, query{filter: conntrack.Filter{Family: only, Status: translated, Mask: replied}})
			if isClosedDue {
				queries = append(queries, query{filter: conntrack.Filter{Family: only, Status: replied, Mask: replied}, scansReplied: true})
			}
		}
	}
	return queries
}
