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
	Sent, NACKed [kinds]int
	// Rejected counts rejected connections, streams, requests and names by reason.
	Rejected map[RejectReason]int
}

// Counts returns the current counts.
func (s *Server) Counts() Counts {
	s.usage.mutex.Lock()
	defer s.usage.mutex.Unlock()
	now := s.usage.counts
	now.Streams, now.Names = s.usage.all[openStreams], s.usage.all[subscribedNames]
	now.Rejected = maps.Clone(now.Rejected)
	return now
}

// Status returns the part of the page /summary about a server that should serve some addresses.
func (s *Server) Status(addresses []string) *status.XDS {
	counts := s.Counts()
	now := &status.XDS{
		Clients: []status.XDSClient{}, Streams: counts.Streams, Names: counts.Names, Rejected: map[string]int{},
		UnknownNames: counts.Rejected[UnknownName],
	}
	for _, rejected := range counts.NACKed {
		now.RejectedResponses += rejected
	}
	delete(counts.Rejected, UnknownName)
	for why, count := range counts.Rejected {
		now.Rejected[string(why)] = count
	}
	s.usage.mutex.Lock()
	defer s.usage.mutex.Unlock()
	for _, address := range addresses {
		now.Addresses = append(now.Addresses, status.XDSAddress{Address: address, Error: s.usage.failing[address]})
	}
	for client, used := range s.usage.clients {
		if used.usageCounts[openStreams] == 0 {
			continue
		}
		one := status.XDSClient{Streams: used.usageCounts[openStreams], Names: used.usageCounts[subscribedNames],
			UnreadBytes: used.usageCounts[unreadBytes]}
		if client.IsValid() {
			one.Address = client.String()
		}
		now.Clients = append(now.Clients, one)
	}
	slices.SortFunc(now.Clients, func(a, b status.XDSClient) int {
		return cmp.Or(cmp.Compare(b.Streams, a.Streams), cmp.Compare(a.Address, b.Address))
	})
	return now
}

// reject counts and logs (once) a rejection, and returns the error for the client.
func (s *Server) reject(why RejectReason, client netip.Addr, details string) error {
	from := "the socket"
	if client.IsValid() {
		from = client.String()
	}
	if s.loggedRejections.isNew(time.Now(), client, string(why)) {
		s.Log.Warn("rejected an xDS client", "client", from, "reason", why, "details", details)
	}
	s.usage.count(func(now *Counts) { now.Rejected[why]++ })
	code := codes.ResourceExhausted
	if why == MalformedRequest {
		code = codes.InvalidArgument
	}
	return grpcstatus.Error(code, details)
}
