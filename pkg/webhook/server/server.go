package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

// The timeouts and limits for clients. An API server is near, and itself gives up after the webhook's timeoutSeconds.
const (
	// headerTimeout also bounds a TLS handshake. A process that gets no CPU time for some seconds must not fail reviews
	// for which API servers still wait. They wait for up to 30 s; with a timeout of 5 s such a stall failed reviews.
	headerTimeout = 10 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second
	// idleTimeout is longer than the 90 seconds after which an API server's client closes an idle connection. If the
	// server closed one first, a review that is just being sent on it would be lost: a POST is not retried.
	idleTimeout    = 150 * time.Second
	maxHeaderBytes = 16 << 10

	// maxConnections bounds the open connections; each takes about 30 KB. Further ones wait in the kernel until one of
	// them closes: the API server gives up after timeoutSeconds, and applies failurePolicy. An API server keeps 25 idle
	// connections (MaxIdleConnsPerHost of its client).
	//
	// If that many connections could be idle for idleTimeout, a client that opens them would lock out all others for as
	// long. So responses ask for their connection to be closed while there are more than softMaxConnections. Those beyond
	// that last no longer than headerTimeout, or readTimeout and writeTimeout.
	maxConnections     = 1000
	softMaxConnections = maxConnections / 2

	// shutdownTimeout is how long running requests may take at the very end. None takes longer, with the timeouts above.
	shutdownTimeout = readTimeout + 2*time.Second
)

// DefaultShutdownDelay is how long a draining server still serves all requests: a cluster's proxies need some seconds
// to notice that it is no longer ready.
const DefaultShutdownDelay = 10 * time.Second

// Options configure a Server.
type Options struct {
	// Listener accepts the connections of API servers. The server closes it.
	Listener net.Listener
	// Handlers serve the paths. See the function Handlers.
	Handlers map[string]http.Handler
	// Certificate returns the certificate to serve, with its Leaf; it is called at each handshake, so a new one is served
	// at once.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinTLSVersion defaults to tls.VersionTLS13; versions before tls.VersionTLS12 are not served.
	MinTLSVersion uint16
	// Synced returns which part of the cluster's state is not known yet; nil if all is known. It must not block.
	Synced func() error
	// ShutdownDelay is how long all requests are still served while draining.
	ShutdownDelay time.Duration
	Log           *slog.Logger
}

// Server serves HTTPS to API servers. controller-runtime's webhook.Server is not used, because it closes its listener
// as soon as its context ends, supports HTTP/2, and keeps idle connections for just as long as the API server does.
type Server struct {
	options Options
	http    *http.Server
	grace   time.Duration // shutdownTimeout

	listening   atomic.Bool
	connections atomic.Int64
	drainOnce   sync.Once
	draining    chan struct{} // closed when draining starts
	drained     chan struct{} // closed after ShutdownDelay
}

// New returns a server that is not started yet.
func New(options Options) *Server {
	s := &Server{
		options:  options,
		grace:    shutdownTimeout,
		draining: make(chan struct{}),
		drained:  make(chan struct{}),
	}
	mux := http.NewServeMux()
	for path, handler := range options.Handlers {
		mux.Handle(path, handler)
	}
	s.http = &http.Server{
		Handler:           s.withConnectionClose(mux),
		TLSConfig:         tlsConfig(options),
		Protocols:         onlyHTTP1(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.countConnection,
		ErrorLog:          connectionLog{options.Log}.logger(),
	}
	return s
}

func tlsConfig(options Options) *tls.Config {
	version := max(options.MinTLSVersion, tls.VersionTLS12)
	if options.MinTLSVersion == 0 {
		version = tls.VersionTLS13
	}
	return &tls.Config{
		MinVersion:     version,
		GetCertificate: options.Certificate,
		NextProtos:     []string{"http/1.1"},
	}
}

// onlyHTTP1 excludes HTTP/2: no API server uses it for webhooks (kubernetes/kubernetes#82090), and no other client
// should.
func onlyHTTP1() *http.Protocols {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &protocols
}

// countConnection is called at each change of a connection's state. The server never hijacks a connection.
func (s *Server) countConnection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.connections.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// isOverloaded reports whether responses must ask clients to close their connections.
func (s *Server) isOverloaded() bool { return s.connections.Load() > softMaxConnections }

// Start serves until ctx ends, then drains as Drain does, unless that is done already, and closes the remaining
// connections. It returns nil after ctx ends. It must be called only once.
func (s *Server) Start(ctx context.Context) error {
	address := s.options.Listener.Addr().String()
	ended := make(chan error, 1)
	listener := netutil.LimitListener(s.options.Listener, maxConnections)
	go func() { ended <- s.http.ServeTLS(listener, "", "") }()
	s.listening.Store(true)
	defer s.listening.Store(false)
	s.options.Log.Info("serving admission reviews", "address", address)

	if err := s.untilDrained(ctx, ended); err != nil {
		return fmt.Errorf("serve admission reviews on %s: %w", address, err)
	}
	s.close(ctx)
	// If ctx ended before the server started, it closes the listener only now.
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admission reviews on %s: %w", address, err)
	}
	return nil
}

// untilDrained returns the error that ended serving, or nil after draining.
func (s *Server) untilDrained(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-s.drain():
		return nil
	}
}

// close stops listening, closes idle connections, and lets running requests finish.
func (s *Server) close(ctx context.Context) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.options.Log.Warn("shutdown timed out; closing the remaining connections", "error", err)
		// The program ends anyway, and an error changes nothing here.
		_ = s.http.Close()
	}
}
