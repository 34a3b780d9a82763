package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
)

// Server serves DNS over UDP and TCP.
type Server struct {
	Table *Table
	// OnResponse is called with the result of each query, by many goroutines concurrently. It must return at once.
	OnResponse func(Result)
	Log        *slog.Logger
}

// udpReaders is the number of goroutines that serve UDP: while one waits for the kernel, another one works.
const udpReaders = 2

// Run serves an address until ctx ends. If the address is not available, Run retries: connections to Services must not
// depend on DNS.
func (s *Server) Run(ctx context.Context, address netip.AddrPort) error {
	httpserve.Retry(ctx, s.Log, "failed to listen for DNS", func() error { return s.serve(ctx, address) })
	return nil
}

func (s *Server) serve(ctx context.Context, address netip.AddrPort) error {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return fmt.Errorf("listen on --dns-bind-address %s: %w", address, err)
	}
	defer func() { _ = udp.Close() }()
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
	if err != nil {
		return fmt.Errorf("listen on --dns-bind-address %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { _, _ = udp.Close(), tcp.Close() })
	defer stop()
	s.Log.Info("serving DNS for headless Services with topology keys", "address", address, "domain", s.Table.Zone.Domain)
	var serving sync.WaitGroup
	for range udpReaders {
		serving.Go(func() { s.serveUDP(udp) })
	}
	serving.Go(func() { s.serveTCP(ctx, httpserve.LimitListener(tcp, maxConnections)) })
	serving.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the sockets of --dns-bind-address were closed")
}

// serveUDP serves until the socket is closed. An error other than that affects only one datagram.
func (s *Server) serveUDP(socket *net.UDPConn) {
	query := make([]byte, maxQueryLength)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(query)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if answer := s.answer(query[:n], UDP); answer != nil {
			_, _ = socket.WriteToUDPAddrPort(answer, from) // the client may have disappeared
		}
	}
}

func (s *Server) answer(query []byte, transport Transport) []byte {
	answer, result := s.Table.Zone.Answer(query, transport, s.Table.Lookup, rand.Uint32N)
	s.OnResponse(result)
	return answer
}
