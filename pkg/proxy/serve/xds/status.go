package xds

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
)

// Counts are the current usage of a server, and the events since its start.
type Counts struct {
	Streams, Names int // open streams, and names that clients subscribe to
	// Sent counts the responses by the kind of their resources, and NACKed those that clients rejected.
	Sent, NACKed [numKinds]int
	// Rejected counts rejected connections, streams, requests and names by reason.
	Rejected map[RejectReason]int
}

// Counts returns the current counts.
func (s *Server) Counts() Counts {
	s.usage.mutex.Lock()
	defer s.usage.mutex.Unlock()
	counts := s.usage.counts
	counts.Streams, counts.Names = s.usage.all[openStreams], s.usage.all[subscribedNames]
	counts.Rejected = maps.Clone(counts.Rejected)
	return counts
}

// Status returns the part of the page /summary about a server that should serve some addresses.
func (s *Server) Status(addresses []string) *status.XDS {
	counts := s.Counts()
	page := &status.XDS{
		Clients: []status.XDSClient{}, Streams: counts.Streams, Names: counts.Names, Rejected: map[string]int{},
		UnknownNames: counts.Rejected[UnknownName],
	}
	for _, rejected := range counts.NACKed {
		page.RejectedResponses += rejected
	}
	delete(counts.Rejected, UnknownName)
	for reason, count := range counts.Rejected {
		page.Rejected[string(reason)] = count
	}
	s.usage.mutex.Lock()
	defer s.usage.mutex.Unlock()
	for _, address := range addresses {
		page.Addresses = append(page.Addresses, status.XDSAddress{Address: address, Error: s.usage.addressErrors[address]})
	}
	for client, used := range s.usage.clients {
		if used.usageCounts[openStreams] == 0 {
			continue
		}
		entry := status.XDSClient{Streams: used.usageCounts[openStreams], Names: used.usageCounts[subscribedNames],
			UnreadBytes: used.usageCounts[unreadBytes]}
		if client.IsValid() {
			entry.Address = client.String()
		}
		page.Clients = append(page.Clients, entry)
	}
	slices.SortFunc(page.Clients, func(a, b status.XDSClient) int {
		return cmp.Or(cmp.Compare(b.Streams, a.Streams), cmp.Compare(a.Address, b.Address))
	})
	return page
}

// reject counts a rejection, logs it once for each client and reason, and returns the error for the client.
func (s *Server) reject(reason RejectReason, client netip.Addr, details string) error {
	from := "the socket"
	if client.IsValid() {
		from = client.String()
	}
	if s.loggedRejections.allow(time.Now(), client, string(reason)) {
		s.Log.Warn("rejected an xDS client", "client", from, "reason", reason, "details", details)
	}
	s.usage.updateCounts(func(counts *Counts) { counts.Rejected[reason]++ })
	code := codes.ResourceExhausted
	if reason == MalformedRequest {
		code = codes.InvalidArgument
	}
	return grpcstatus.Error(code, details)
}
