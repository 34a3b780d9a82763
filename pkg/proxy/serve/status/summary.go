package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Summary is what the page /summary says about the proxy: whether the kernel agrees with the cluster, as far as the
// proxy knows, and what is left out.
//
// Its JSON names are an interface: `proxy status` and scripts read them.
type Summary struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Began   time.Time `json:"began"` // when the process did
	// InSyncSince is since when every change has soon reached the kernel; null while a change waits or fails.
	InSyncSince *time.Time `json:"inSyncSince"`
	// Newest is the newest sync that the kernel accepted; null before the first.
	Newest *Sync `json:"newest"`
	// Services is how many Services own something in the kernel. DNSServices is how many headless ones, which own nothing
	// there, are answered by DNS. Waiting is how many of both wait for their turn, RefusedByKernel how many the kernel
	// refuses; Contested is how many frontends are claimed by two Services; RefusedObjects is how many objects are left
	// out.
	Services         int `json:"services"`
	DNSServices      int `json:"dnsServices"`
	Waiting          int `json:"waiting"`
	RejectedByKernel int `json:"refusedByKernel"`
	Contested        int `json:"contested"`
	InvalidObjects   int `json:"refusedObjects"`
	// PendingSince is since when a change waits for a sync, and LastError why the last one failed.
	PendingSince *time.Time `json:"pendingSince"`
	LastError    string     `json:"lastError"`
	// Manifests is the absolute path of the manifests that the state of the cluster is read from; empty for an API server.
	Manifests string `json:"manifests"`
	// NodeTopology is the resource from which we learn where other nodes are, one of model.TopologyResources; empty while
	// no Service needs it. With manifests it is always the Nodes in them.
	NodeTopology string `json:"nodeTopology"`
	// NotEligible is why load balancers are sent away from the node, as by an evacuation; empty if they are not.
	NotEligible string `json:"notEligible"`
	// Reachability is which nodes do not answer this one; null if no node is dialled.
	Reachability *Reachability `json:"reachability"`
	// XDS is which clients get endpoints by xDS; null if --xds-bind-address is not set.
	XDS *XDS `json:"xds"`
	// KernelSettings are those that are not as the proxy needs them, or that somebody changed since it began; never null.
	KernelSettings []KernelSetting `json:"kernelSettings"`
	// Interruptions are the resources whose watches are interrupted; never null.
	Interruptions []Interruption `json:"interruptions"`
}

// Reachability is what a proxy knows about which nodes answer its own.
type Reachability struct {
	Unreachable []UnreachableNode `json:"unreachable"` // never null
	// Demotes: new connections avoid these nodes' endpoints.
	Demotes bool `json:"avoided"`
	// Families is what is known in IPv4 and in IPv6.
	Families map[string]FamilyReachability `json:"families"`
}

// FamilyReachability is what a proxy knows about which nodes answer its own in one IP family.
type FamilyReachability struct {
	// IsolatedSince is since when nobody answers, so that no node is taken to be unreachable; null if anybody answers.
	IsolatedSince *time.Time `json:"isolatedSince"`
	// WithBaseline is how many nodes answer probes, and NeverAnswered how many never did: nothing is concluded from their
	// silence.
	WithBaseline    int `json:"withBaseline"`
	WithoutBaseline int `json:"withoutBaseline"`
	// HasNoControl: one other node answers, and there is no third machine to tell its death from an isolation of this one.
	HasNoControl bool `json:"hasNoControl"`
}

// HasDemoted returns what the proxy tries last because nodes do not answer it. This stands in no object.
func (s *Summary) HasDemoted() model.Change {
	if s == nil || s.Reachability == nil || !s.Reachability.Demotes {
		return model.Change{}
	}
	demotion := map[model.DemotionKey]*model.Demotion{}
	for _, node := range s.Reachability.Unreachable {
		why := &model.Demotion{Reason: model.Unreachable, Since: node.Since}
		for _, family := range model.Families {
			if slices.Contains(node.Families, family.String()) {
				why.Families = append(why.Families, family)
			}
		}
		demotion[model.DemotionKey{Node: node.Node, Reason: model.Unreachable}] = why
	}
	return model.Change{Demotions: demotion}
}

// Unreachable returns a sentence for each node that does not answer the proxy's own. All commands print it, with the
// time since which decisions count the node as unreachable.
func (s *Summary) Unreachable() []string {
	if s.Reachability == nil {
		return nil
	}
	becomes := "its endpoints are tried last here"
	if !s.Reachability.Demotes {
		becomes = "it is only observed (--unreachable-node-mode), and its endpoints are used like those of any node"
	}
	var sentences []string
	for _, node := range s.Reachability.Unreachable {
		in := ""
		if len(node.Families) == 1 {
			in = " over " + node.Families[0]
		}
		sentences = append(sentences, fmt.Sprintf("node %s has not answered %s%s since %s: %s",
			node.Node, s.Node, in, node.Since.UTC().Format("2006-01-02 15:04:05 UTC"), becomes))
	}
	return sentences
}

// UnreachableNode is a node that does not answer in some families. Since is when that was found out. LastAnswer may be an
// hour older: a node that nobody suspects is probed once an hour.
type UnreachableNode struct {
	Node      string    `json:"node"`
	Families  []string  `json:"families"`
	Since     time.Time `json:"since"`
	LastReply time.Time `json:"lastAnswer"`
	NextDial  time.Time `json:"nextDial"`
}

// KernelSetting is a setting of the kernel that did not stay as the proxy needs it.
type KernelSetting struct {
	Name    string `json:"name"`
	Value   int64  `json:"value"` // at the last look, before it was written
	Desired int64  `json:"wanted"`
	Without string `json:"without"` // what does not work meanwhile; empty if the name says enough
	Do      string `json:"do"`
	// UnmetSince is since when the kernel has another value that the proxy may not change; null if it does not.
	UnmetSince *time.Time `json:"unmetSince"`
	// Restored is how often somebody changed it and the proxy set it again, RestoredAt when it last did; null if never.
	Restored   int        `json:"restored"`
	RestoredAt *time.Time `json:"restoredAt"`
}

// XDS is what a proxy knows of clients that choose endpoints themselves.
type XDS struct {
	Addresses []XDSAddress `json:"addresses"`
	// Clients are the connected clients, the one with the most streams first; never null. Streams and Names are of all of
	// them: a client has a stream for each Service that it dials by gRPC, and asks for a name of each kind of resource.
	Clients []XDSClient `json:"clients"`
	Streams int         `json:"streams"`
	Names   int         `json:"names"`
	// Since the process began: Refused counts what was not served, by reason; UnknownNames counts names that were no TCP
	// port of a Service, and RejectedResponses counts responses that clients rejected. Never null.
	Rejected          map[string]int `json:"refused"`
	UnknownNames      int            `json:"unknownNames"`
	RejectedResponses int            `json:"rejectedResponses"`
}

// XDSAddress is where xDS is answered. Error says why it is not; empty if it is.
type XDSAddress struct {
	Address string `json:"address"`
	Error   string `json:"error"`
}

// XDSClient is a client by its address; empty for all clients of the socket together.
type XDSClient struct {
	Address     string `json:"address"`
	Streams     int    `json:"streams"`
	Names       int    `json:"names"`
	UnreadBytes int    `json:"unreadBytes"`
}

// Sync is one sync.
type Sync struct {
	At       time.Time `json:"at"` // when the kernel had it
	Seconds  float64   `json:"seconds"`
	Services int       `json:"services"` // that it decided about, those that are gone included
	Complete bool      `json:"complete"`
}

// Numbers are those of a Summary that syncs report.
type Numbers struct{ Services, Waiting, RejectedByKernel, Contested int }

// SyncDone takes in a sync that the kernel accepted, for the summary.
func (s *Status) SyncDone(sync Sync, numbers Numbers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest, s.numbers = &sync, numbers
	switch {
	case numbers.Waiting > 0:
		s.agreesSince = time.Time{}
	case s.agreesSince.IsZero():
		s.agreesSince = sync.At
	}
}

// TopologyFrom takes in the resource from which we learn where other nodes are.
func (s *Status) TopologyFrom(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodesFrom = resource
}

// Summary sums up what was reported until now.
func (s *Status) Summary(node, version string, began, now time.Time) Summary {
	health := s.Health(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	summary := Summary{
		Node: node, Version: version, Began: began, Newest: s.newest,
		Services: s.numbers.Services, Waiting: s.numbers.Waiting, RejectedByKernel: s.numbers.RejectedByKernel,
		Contested: s.numbers.Contested, NodeTopology: s.nodesFrom, InvalidObjects: health.InvalidObjects, LastError: health.LastError,
		NotEligible:   health.NotEligible,
		Interruptions: append([]Interruption{}, health.Interruptions...),
	}
	if since := s.agreesSince; !since.IsZero() {
		summary.InSyncSince = &since
	}
	if !health.PendingSince.IsZero() {
		summary.PendingSince = &health.PendingSince
	}
	return summary
}
