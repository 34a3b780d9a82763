package xds

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Status is what a server does at present, and what it has refused since it began.
type Status struct {
	// Addresses are where it should answer, each with the reason why it does not; the reason is empty if it does.
	Addresses map[string]string
	// Clients are the clients with a stream, the one with the most streams first.
	Clients []Client
	// Refused counts by reason, Unknown the names that meant no Service port, and Rejected the responses that clients did
	// not take.
	Refused           map[Refusal]int
	Unknown, Rejected int
}

// Client is an address with its streams, the resources that it asks for, and how many bytes it has not read. The zero
// address stands for all clients of the socket.
type Client struct {
	Addr                   netip.Addr
	Streams, Names, Unread int
}

// record is the part of a Status that is stored nowhere else.
type record struct {
	mutex             sync.Mutex
	addresses         map[string]string
	refused           map[Refusal]int
	unknown, rejected int
}

// Status returns the present status.
func (s *Server) Status() Status {
	r := &s.record
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return Status{
		Addresses: maps.Clone(r.addresses), Clients: s.admission.connected(),
		Refused: maps.Clone(r.refused), Unknown: r.unknown, Rejected: r.rejected,
	}
}

// notAnswering says why an address does not answer; empty if it does.
func (s *Server) notAnswering(address, why string) {
	s.record.mutex.Lock()
	defer s.record.mutex.Unlock()
	if s.record.addresses == nil {
		s.record.addresses = map[string]string{}
	}
	s.record.addresses[address] = why
}

// refuse counts a client that is not served, logs it once, and returns what the client is told.
func (s *Server) refuse(why Refusal, client netip.Addr, details string) error {
	s.Observer.Refused(why)
	from := "the socket"
	if client.IsValid() {
		from = client.String()
	}
	if s.loggedRefusals.isNew(time.Now(), client, string(why)) {
		s.Log.Warn("a client of xDS is refused", "client", from, "reason", why, "details", details)
	}
	s.record.mutex.Lock()
	defer s.record.mutex.Unlock()
	if s.record.refused == nil {
		s.record.refused = map[Refusal]int{}
	}
	s.record.refused[why]++
	code := codes.ResourceExhausted
	if why == MalformedRequest {
		code = codes.InvalidArgument
	}
	return status.Error(code, details)
}

// foundUnknown counts a name that means no Service port.
func (s *Server) foundUnknown() {
	s.Observer.Unknown()
	s.record.mutex.Lock()
	defer s.record.mutex.Unlock()
	s.record.unknown++
}

// wasRejected counts a response that a client rejected.
func (s *Server) wasRejected(of kind) {
	s.Observer.Rejected(of.String())
	s.record.mutex.Lock()
	defer s.record.mutex.Unlock()
	s.record.rejected++
}
