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

// The bounds of each wait for a client. An API server is near, and itself gives up after the webhook's timeoutSeconds.
const (
	// headerTimeout bounds a TLS handshake too. A process that gets no processor time for some seconds must not fail
	// reviews for which API servers still wait. They wait for up to 30 s; with a timeout of 5 s such a stall failed
	// reviews.
	headerTimeout = 10 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second
	// idleTimeout is longer than the 90 seconds after which an API server's client closes a connection that idles. If the
	// server were the first to close one, a review that is just being sent on it would be lost: a POST is not sent again.
	idleTimeout = 150 * time.Second
	headerBytes = 16 << 10

	// maxConnections is how many may be open at the same moment; each takes some 30 KB. Further ones wait in the
	// kernel, unanswered, until one of them closes: the API server gives up after timeoutSeconds, and follows failurePolicy. An
	// API server keeps 25 idle connections (MaxIdleConnsPerHost of its client).
	//
	// If connections could idle for as long as idleTimeout up to that number, a client that opens so many would shut out
	// all others for as long. So answers ask for their connection to be closed while there are more than
	// keptConnections of them. What is beyond that lasts no longer than headerTimeout, or readTimeout and writeTimeout.
	maxConnections  = 1000
	keptConnections = maxConnections / 2

	// shutdownTimeout is how long running answers may take at the very end. None takes longer, with the timeouts above.
	shutdownTimeout = readTimeout + 2*time.Second
)

// DefaultShutdownDelay is how long a server that is about to end still answers all requests: a cluster's proxies need
// some seconds to notice that it is no longer ready.
const DefaultShutdownDelay = 10 * time.Second

// Options are what a Server needs.
type Options struct {
	// Listener is where API servers connect. The server closes it.
	Listener net.Listener
	// Handlers answer the paths. See Handlers.
	Handlers map[string]http.Handler
	// Certificate is the one to serve, with its Leaf; it is asked at each handshake, so that a new one is served at once.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinTLSVersion is tls.VersionTLS13 if it is zero; less than tls.VersionTLS12 is not served.
	MinTLSVersion uint16
	// Synced returns what is not known yet about the cluster; nil if everything is. It must not wait.
	Synced func() error
	// ShutdownDelay is how long all requests are still answered while draining.
	ShutdownDelay time.Duration
	Log           *slog.Logger
}

// Server serves HTTPS to API servers. controller-runtime's webhook.Server is not used, because it closes its listener at
// the first sign of an end, speaks HTTP/2, and lets connections idle for just as long as the API server does.
type Server struct {
	options Options
	http    *http.Server
	grace   time.Duration // shutdownTimeout

	listening   atomic.Bool
	connections atomic.Int64
	drainOnce   sync.Once
	draining    chan struct{} // closed when draining begins
	drained     chan struct{} // closed when its delay is over
}

// New returns a server that Start starts.
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
		Handler:           s.closesConnections(mux),
		TLSConfig:         tlsConfig(options),
		Protocols:         onlyHTTP1(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
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

// onlyHTTP1 leaves HTTP/2 out: no API server speaks it to webhooks (kubernetes/kubernetes#82090), and nobody else
// should.
func onlyHTTP1() *http.Protocols {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &protocols
}

// countConnection is called at each change of a connection's state. The server hands no connection over (hijack).
func (s *Server) countConnection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.connections.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// isOverloaded reports whether there are more connections than may idle.
func (s *Server) isOverloaded() bool { return s.connections.Load() > keptConnections }

// Start serves until ctx ends, then drains as Drain does unless that is done already, and closes what is left. The end
// of ctx is not an error. It is called once.
func (s *Server) Start(ctx context.Context) error {
	address := s.options.Listener.Addr().String()
	ended := make(chan error, 1)
	listener := netutil.LimitListener(s.options.Listener, maxConnections)
	go func() { ended <- s.http.ServeTLS(listener, "", "") }()
	s.listening.Store(true)
	defer s.listening.Store(false)
	s.options.Log.Info("serving admission reviews", "address", address)

	if err := s.untilDrained(ctx, ended); err != nil {
		return fmt.Errorf("serving admission reviews on %s: %w", address, err)
	}
	s.close(ctx)
	// If ctx ended before the server had begun, it closes the listener only now.
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving admission reviews on %s: %w", address, err)
	}
	return nil
}

// untilDrained returns why serving ended by itself, or nil once no connection is left to wait for.
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

// close stops listening, closes connections that idle, and lets running answers finish.
func (s *Server) close(ctx context.Context) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.options.Log.Warn("closing the remaining connections", "error", err)
		// The program ends all the same, and an error changes nothing here.
		_ = s.http.Close()
	}
}
