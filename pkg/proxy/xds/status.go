package xds

import (
	"net/netip"
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

// Status returns the present status.
func (s *Server) Status() Status { return s.ledger.status() }

// notAnswering says why an address does not answer; empty if it does.
func (s *Server) notAnswering(address, why string) {
	s.ledger.count(func(now *Status) { now.Addresses[address] = why })
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
	s.ledger.count(func(now *Status) { now.Refused[why]++ })
	code := codes.ResourceExhausted
	if why == MalformedRequest {
		code = codes.InvalidArgument
	}
	return status.Error(code, details)
}

// foundUnknown counts a name that means no Service port.
func (s *Server) foundUnknown() {
	s.Observer.Unknown()
	s.ledger.count(func(now *Status) { now.Unknown++ })
}

// wasRejected counts a response that a client rejected.
func (s *Server) wasRejected(of kind) {
	s.Observer.Rejected(of.String())
	s.ledger.count(func(now *Status) { now.Rejected++ })
}
