package xds

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// Counts are what a server has at present, and what happened since it began.
type Counts struct {
	Streams, Names int // that clients ask for
	// Sent counts the responses by the kind of their resources, and Rejected those of them that clients rejected.
	Sent, Rejected [kinds]int
	// Refused counts by reason what was not served.
	Refused map[Refusal]int
}

// Counts returns the present counts.
func (s *Server) Counts() Counts {
	s.ledger.mutex.Lock()
	defer s.ledger.mutex.Unlock()
	now := s.ledger.counts
	now.Streams, now.Names = s.ledger.all[openStreams], s.ledger.all[askedNames]
	now.Refused = maps.Clone(now.Refused)
	return now
}

// Status returns what the page /summary says of a server that should answer at some addresses.
func (s *Server) Status(addresses []string) *status.XDS {
	counts := s.Counts()
	now := &status.XDS{
		Clients: []status.XDSClient{}, Streams: counts.Streams, Names: counts.Names, Refused: map[string]int{},
		UnknownNames: counts.Refused[UnknownName],
	}
	for _, rejected := range counts.Rejected {
		now.RejectedResponses += rejected
	}
	delete(counts.Refused, UnknownName)
	for why, count := range counts.Refused {
		now.Refused[string(why)] = count
	}
	s.ledger.mutex.Lock()
	defer s.ledger.mutex.Unlock()
	for _, address := range addresses {
		now.Addresses = append(now.Addresses, status.XDSAddress{Address: address, Error: s.ledger.failing[address]})
	}
	for client, used := range s.ledger.clients {
		if used.held[openStreams] == 0 {
			continue
		}
		one := status.XDSClient{Streams: used.held[openStreams], Names: used.held[askedNames], UnreadBytes: used.held[unreadBytes]}
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

// refuse counts a client that is not served, logs it once, and returns what the client is told.
func (s *Server) refuse(why Refusal, client netip.Addr, details string) error {
	from := "the socket"
	if client.IsValid() {
		from = client.String()
	}
	if s.loggedRefusals.isNew(time.Now(), client, string(why)) {
		s.Log.Warn("a client of xDS is refused", "client", from, "reason", why, "details", details)
	}
	s.ledger.count(func(now *Counts) { now.Refused[why]++ })
	code := codes.ResourceExhausted
	if why == MalformedRequest {
		code = codes.InvalidArgument
	}
	return grpcstatus.Error(code, details)
}
