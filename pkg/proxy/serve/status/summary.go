package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Summary is the content of the page /summary: whether the kernel is in sync with the cluster, to the proxy's
// knowledge, and which objects are not served.
//
// Its JSON names are an interface: `proxy status` and scripts read them.
type Summary struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Began   time.Time `json:"began"` // start time of the process
	// InSyncSince is the time since which every change has reached the kernel promptly; null while a change is pending or
	// fails.
	InSyncSince *time.Time `json:"inSyncSince"`
	// Newest is the newest sync that the kernel accepted; null before the first.
	Newest *Sync `json:"newest"`
	// Services is the number of Services with elements in the kernel. DNSServices is the number of headless Services that
	// DNS serves; those have no elements in the kernel. Waiting is the number of both that are queued. RejectedByKernel is
	// the number of Services that the kernel rejects, Contested the number of frontends that two Services claim, and
	// InvalidObjects the number of invalid objects.
	Services         int `json:"services"`
	DNSServices      int `json:"dnsServices"`
	Waiting          int `json:"waiting"`
	RejectedByKernel int `json:"refusedByKernel"`
	Contested        int `json:"contested"`
	InvalidObjects   int `json:"refusedObjects"`
	// PendingSince is since when a change has been pending, and LastError is why the last sync failed.
	PendingSince *time.Time `json:"pendingSince"`
	LastError    string     `json:"lastError"`
	// Manifests is the absolute path of the manifests that define the state of the cluster; empty with an API server.
	Manifests string `json:"manifests"`
	// NodeTopology is the resource that provides the topology of other nodes, one of model.TopologyResources; empty while
	// no Service needs it. With manifests it is always the Nodes in them.
	NodeTopology string `json:"nodeTopology"`
	// IneligibleReason is why load balancers must not use the node, such as an evacuation; empty if they may.
	IneligibleReason string `json:"notEligible"`
	// Reachability lists the nodes that do not reply to this one; null if no node is probed.
	Reachability *Reachability `json:"reachability"`
	// XDS lists the clients that get endpoints by xDS; null if --xds-bind-address is not set.
	XDS *XDS `json:"xds"`
	// KernelSettings are the settings that differ from what the proxy needs, or that another program changed since the
	// proxy started; never null.
	KernelSettings []KernelSetting `json:"kernelSettings"`
	// Interruptions are the resources whose watches are interrupted; never null.
	Interruptions []Interruption `json:"interruptions"`
}

// Reachability describes which nodes reply to the proxy's own.
type Reachability struct {
	Unreachable []UnreachableNode `json:"unreachable"` // never null
	// Demotes reports whether new connections avoid these nodes' endpoints.
	Demotes bool `json:"avoided"`
	// Families is the state of each IP family.
	Families map[string]FamilyReachability `json:"families"`
}

// FamilyReachability describes which nodes reply to the proxy's own in one IP family.
type FamilyReachability struct {
	// IsolatedSince is the time since which no node replies, so that no node counts as unreachable; null if any node
	// replies.
	IsolatedSince *time.Time `json:"isolatedSince"`
	// WithBaseline is the number of nodes that have replied to probes, WithoutBaseline the number of those that never did:
	// those are never considered unreachable.
	WithBaseline    int `json:"withBaseline"`
	WithoutBaseline int `json:"withoutBaseline"`
	// HasNoControl is set if only one other node replies and there is no third machine. Then a failure of that node cannot
	// be distinguished from isolation of this one.
	HasNoControl bool `json:"hasNoControl"`
}

// DemotionChange returns the demotions of the nodes that do not reply to the proxy. No Kubernetes object contains them.
func (s *Summary) DemotionChange() model.Change {
	if s == nil || s.Reachability == nil || !s.Reachability.Demotes {
		return model.Change{}
	}
	demotions := map[model.DemotionKey]*model.Demotion{}
	for _, node := range s.Reachability.Unreachable {
		demotion := &model.Demotion{Reason: model.Unreachable, Since: node.Since}
		for _, family := range model.Families {
			if slices.Contains(node.Families, family.String()) {
				demotion.Families = append(demotion.Families, family)
			}
		}
		demotions[model.DemotionKey{Node: node.Node, Reason: model.Unreachable}] = demotion
	}
	return model.Change{Demotions: demotions}
}

// UnreachableSentences returns a sentence for each node that does not reply to the proxy's own. All commands print it,
// with the time since which decisions treat the node as unreachable.
func (s *Summary) UnreachableSentences() []string {
	if s.Reachability == nil {
		return nil
	}
	effect := "its endpoints are tried last"
	if !s.Reachability.Demotes {
		effect = "this is only reported (--unreachable-node-mode), and its endpoints are used as usual"
	}
	var sentences []string
	for _, node := range s.Reachability.Unreachable {
		suffix := ""
		if len(node.Families) == 1 {
			suffix = " over " + node.Families[0]
		}
		sentences = append(sentences, fmt.Sprintf("node %s has not replied to %s%s since %s: %s",
			node.Node, s.Node, suffix, node.Since.UTC().Format("2006-01-02 15:04:05 UTC"), effect))
	}
	return sentences
}

// UnreachableNode is a node that does not reply in some families. Since is when this was detected. LastReply may be up
// to an hour older: a node that is not suspected is probed once an hour.
type UnreachableNode struct {
	Node      string    `json:"node"`
	Families  []string  `json:"families"`
	Since     time.Time `json:"since"`
	LastReply time.Time `json:"lastAnswer"`
	NextDial  time.Time `json:"nextDial"`
}

// KernelSetting is a kernel setting that did not stay as the proxy needs it.
type KernelSetting struct {
	Name    string `json:"name"`
	Value   int64  `json:"value"` // at the last check, before the proxy wrote it
	Desired int64  `json:"wanted"`
	Impact  string `json:"without"` // what does not work with another value; empty if the name makes it clear
	Remedy  string `json:"do"`
	// UnmetSince is the time since which the kernel has another value that the proxy may not change; null if it does not.
	UnmetSince *time.Time `json:"unmetSince"`
	// Restored is the number of times that another program changed the setting and the proxy set it again. RestoredAt is
	// the last such time; null if there was none.
	Restored   int        `json:"restored"`
	RestoredAt *time.Time `json:"restoredAt"`
}

// XDS describes the clients that choose endpoints themselves.
type XDS struct {
	Addresses []XDSAddress `json:"addresses"`
	// Clients are the connected clients, those with the most streams first; never null. Streams and Names are the totals:
	// a client has a stream for each Service that it dials by gRPC, and requests one name of each kind of resource.
	Clients []XDSClient `json:"clients"`
	Streams int         `json:"streams"`
	Names   int         `json:"names"`
	// Since the process started: Rejected counts the rejected connections, streams and requests, by reason. UnknownNames
	// counts names that were no TCP port of a Service, and RejectedResponses counts responses that clients rejected.
	// Rejected is never null.
	Rejected          map[string]int `json:"refused"`
	UnknownNames      int            `json:"unknownNames"`
	RejectedResponses int            `json:"rejectedResponses"`
}

// XDSAddress is an address at which xDS is served. Error is why it is not served; empty if it is.
type XDSAddress struct {
	Address string `json:"address"`
	Error   string `json:"error"`
}

// XDSClient is a client, identified by its address; the address is empty for all clients of the socket together.
type XDSClient struct {
	Address     string `json:"address"`
	Streams     int    `json:"streams"`
	Names       int    `json:"names"`
	UnreadBytes int    `json:"unreadBytes"`
}

// Sync describes one sync that the kernel accepted.
type Sync struct {
	At       time.Time `json:"at"` // when the kernel accepted the sync
	Seconds  float64   `json:"seconds"`
	Services int       `json:"services"` // Services that the sync decided about, including deleted ones
	Complete bool      `json:"complete"` // whether it was a full sync
}

// Numbers are the numbers of a Summary that syncs report.
type Numbers struct{ Services, Waiting, RejectedByKernel, Contested int }

// SyncDone records a sync that the kernel accepted, for the summary.
func (s *Status) SyncDone(sync Sync, numbers Numbers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newestSync, s.newestNumbers = &sync, numbers
	switch {
	case numbers.Waiting > 0:
		s.inSyncSince = time.Time{}
	case s.inSyncSince.IsZero():
		s.inSyncSince = sync.At
	}
}

// SetTopologySource sets the resource that provides the topology of other nodes.
func (s *Status) SetTopologySource(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topologySource = resource
}

// Summary returns a summary of the state reported so far.
func (s *Status) Summary(node, version string, began, now time.Time) Summary {
	health := s.Health(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	summary := Summary{
		Node: node, Version: version, Began: began, Newest: s.newestSync,
		Services: s.newestNumbers.Services, Waiting: s.newestNumbers.Waiting, RejectedByKernel: s.newestNumbers.RejectedByKernel,
		Contested: s.newestNumbers.Contested, NodeTopology: s.topologySource, InvalidObjects: health.InvalidObjects, LastError: health.LastError,
		IneligibleReason: health.IneligibleReason,
		Interruptions:    append([]Interruption{}, health.Interruptions...),
	}
	if since := s.inSyncSince; !since.IsZero() {
		summary.InSyncSince = &since
	}
	if !health.PendingSince.IsZero() {
		summary.PendingSince = &health.PendingSince
	}
	return summary
}
