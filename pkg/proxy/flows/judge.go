//go:build linux

package flows

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Reason is why a connection stays in the table, or goes.
type Reason string

// The reasons. Those of the last two groups are why an entry is deleted.
const (
	NotOurs     Reason = "NotOurs"     // another program translated it, or keeps it in a zone of its own, or nobody translated it
	IsOpen      Reason = "IsOpen"      // it was answered, and is not closed
	MayAnswer   Reason = "MayAnswer"   // its endpoint may answer its client
	HasNotLeft  Reason = "HasNotLeft"  // its endpoint did not leave: it comes, and the snapshot does not know it yet
	IsUncertain Reason = "IsUncertain" // the kernel does not say where the client is
	NotChanged  Reason = "NotChanged"  // it is of UDP, and nothing changed about its frontend since the last look

	DialledInVain Reason = "DialledInVain" // nobody has answered, and its endpoint left
	ClosedBehind  Reason = "ClosedBehind"  // it is closed, and its endpoint left: it would refuse a client that dials from the same port

	MayNotAnswer   Reason = "MayNotAnswer"   // it is of UDP, and its endpoint may not answer its client
	NotServedThere Reason = "NotServedThere" // it is of UDP, and was sent to a frontend or an address that is not served any more
	BeganBefore    Reason = "BeganBefore"    // it is of UDP, and nobody translated it: there was no endpoint when it began
)

// Goes reports whether an entry is deleted for the reason.
func (r Reason) Goes() bool {
	return r == DialledInVain || r == ClosedBehind || r == MayNotAnswer || r == NotServedThere || r == BeganBefore
}

// LookFor is how long dials are looked at after an endpoint left: as long as a Linux client goes on dialling, and at
// least as long as a closed TCP connection is remembered.
const LookFor = 127 * time.Second

// world is what entries are judged by.
type world struct {
	now     time.Time
	owners  *owners.Snapshot
	reader  *owners.Reader // knows what left
	isLocal selection.IsLocal
	// looked is the number of the last sync after which flows of UDP were looked at; 0 before the first look.
	looked uint64
}

// isUnsure reports whether we do not know yet which endpoints left.
func (w *world) isUnsure() bool { return w.now.Sub(w.owners.Since) < LookFor }

// judge decides about an entry. The next packet of a client whose entry is deleted meets the rules as if it were the first.
func (w *world) judge(e *conntrack.Entry) (Reason, error) {
	if e.Protocol == model.UDP {
		return w.judgeFlow(e)
	}
	return w.judgeDial(e)
}

// judgeFlow decides about a flow of UDP. Only flows to frontends that changed since the last look may go. As another
// proxy may have served them before, or none, it does not matter who translated a flow.
func (w *world) judgeFlow(e *conntrack.Entry) (Reason, error) {
	owner := w.reader.OwnerOfFlow(w.owners, e.Dialled(), w.looked)
	switch {
	case owner == nil && w.looked == 0 && owners.IsOurs(e): // its frontend left while no proxy ran
		return NotServedThere, nil
	case owner == nil:
		return NotChanged, nil
	}
	isTranslated := e.Answerer() != e.Dialled()
	if owner.IsNodePort() {
		if reason, err := w.judgeNodePort(owner, e, isTranslated); reason != "" {
			return reason, err
		}
	}
	switch mayAnswer, err := owner.MayAnswer(e.Answerer(), e.Client().Addr(), w.owners.Scope, w.isLocal); {
	case err != nil:
		return IsUncertain, err
	case mayAnswer:
		return MayAnswer, nil
	case e.Status&conntrack.SeenReply != 0 && owner.MayStayOpen(e.Answerer()):
		return IsOpen, nil
	case isTranslated:
		return MayNotAnswer, nil
	}
	// If no endpoint serves the frontend, perhaps a process of this machine answers. A zone belongs to another program: OVS
	// keeps entries in its own that are never translated there.
	if e.Zone == 0 && owner.IsServed() {
		return BeganBefore, nil
	}
	return NotOurs, nil
}

// judgeNodePort decides about a flow to the number of a node port, unless that depends on who may answer. Only at an
// address that serves node ports must it belong to the Service. Anywhere else a flow belongs to the Service if one of its
// endpoints answers: then the address served node ports earlier, or another proxy served them there. At any address another
// program may have translated the flow, if its answerer never was an endpoint. At the start we do not know all that were.
func (w *world) judgeNodePort(owner *owners.Frontend, e *conntrack.Entry, isTranslated bool) (Reason, error) {
	isOfEndpoint := isTranslated && (owners.IsOurs(e) || w.reader.HadEndpoint(owner, e.Answerer()))
	if isTranslated && !isOfEndpoint && w.looked > 0 {
		return NotOurs, nil
	}
	switch isServed, err := w.owners.Scope.ServesNodePorts(e.Dialled().Addr(), w.isLocal); {
	case err != nil:
		return IsUncertain, err
	case isServed:
		return "", nil
	case isOfEndpoint:
		return NotServedThere, nil
	}
	return NotOurs, nil
}

// judgeDial decides about a connection of TCP or SCTP. One that was answered and is not closed always stays.
func (w *world) judgeDial(e *conntrack.Entry) (Reason, error) {
	if reason := w.glance(e); !reason.Goes() {
		return reason, nil
	}
	if owner := w.owners.Owner(e.Protocol, e.Dialled()); owner != nil {
		mayAnswer, err := owner.MayAnswer(e.Answerer(), e.Client().Addr(), w.owners.Scope, w.isLocal)
		switch {
		case err != nil:
			return IsUncertain, err
		case mayAnswer:
			return MayAnswer, nil
		}
	}
	return w.glance(e), nil
}

// glance decides without asking who owns the frontend. If it says that an entry goes, its endpoint may still be one that
// may answer for that frontend: judgeDial finds out.
func (w *world) glance(e *conntrack.Entry) Reason {
	isAnswered := e.Status&conntrack.SeenReply != 0
	switch {
	case !owners.IsOurs(e):
		return NotOurs
	case isAnswered && !isClosed(e):
		return IsOpen
	}
	if !w.reader.Left(owners.Endpoint{Protocol: e.Protocol, Addr: e.Answerer()}) && !w.isUnsure() {
		return HasNotLeft
	}
	if isAnswered {
		return ClosedBehind
	}
	return DialledInVain
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

// question is what a look asks the table for.
type question struct {
	filter conntrack.Filter
	// ofAll: everything that was answered is read, to find closed connections.
	ofAll bool
}

// isOfUDP reports whether it is about flows of UDP. No other one is.
func (q *question) isOfUDP() bool { return q.filter.Protocol == model.UDP }

// flowsOf is the question for flows of UDP, in some families.
func flowsOf(families []model.Family) []question {
	filter := conntrack.Filter{Protocol: model.UDP}
	switch len(families) {
	case 0:
		return nil
	case 1:
		filter.Family = conntrack.Only(families[0])
	}
	return []question{{filter: filter}}
}

// The status of what is looked for.
const (
	answered   = conntrack.DestinationNAT | conntrack.SeenReply
	translated = conntrack.DestinationNAT
)

// dialsTo returns what is asked after endpoints left at some addresses. For a few IPv4 addresses the kernel finds all
// entries that lead there; else it finds the unanswered ones and, if closed ones are due, the answered ones. As long as we
// do not know which endpoints left, only unanswered ones are read.
//
// All of them are read, however many there are: whoever dials an address that is silent makes one, and those that go may
// be anywhere among them. Looks rest the longer, the longer reading takes.
func dialsTo(addrs []netip.Addr, isUnsure, isClosedDue bool) []question {
	if isUnsure {
		return []question{{filter: conntrack.Filter{Status: translated, Mask: answered}}}
	}
	byFamily := map[model.Family][]netip.Addr{}
	for _, addr := range addrs {
		byFamily[model.FamilyOf(addr)] = append(byFamily[model.FamilyOf(addr)], addr)
	}
	var asked []question
	for _, family := range model.Families {
		there, only := byFamily[family], conntrack.Only(family)
		switch {
		case len(there) == 0:
		case family == model.IPv4 && len(there) <= conntrack.FewAnswerers:
			asked = append(asked, question{filter: conntrack.Filter{Family: only, Status: translated, Mask: translated, Answerers: there}})
		default:
			asked = append(asked, question{filter: conntrack.Filter{Family: only, Status: translated, Mask: answered}})
			if isClosedDue {
				asked = append(asked, question{filter: conntrack.Filter{Family: only, Status: answered, Mask: answered}, ofAll: true})
			}
		}
	}
	return asked
}
