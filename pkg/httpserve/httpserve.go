package httpserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The limits. The servers serve small requests from a nearby kubelet or Prometheus. A slower client is broken or
// malicious and must not hold a connection open indefinitely.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute // longer than the usual scrape interval, so that a scraper keeps its connection
	maxHeaderBytes = 16 << 10

	// shutdownTimeout is how long active requests may take to finish at shutdown.
	shutdownTimeout = 2 * time.Second
)

// retryInterval is the delay before a retry to listen on an address that another process may use.
const retryInterval = 5 * time.Second

// Retry calls serve repeatedly, with delays, until it returns nil or ctx ends, because connections to Services must not
// depend on an unavailable address. It logs each new error once, not with every retry.
func Retry(ctx context.Context, log *slog.Logger, message string, serve func() error) {
	logged := ""
	for ctx.Err() == nil {
		err := serve()
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != logged {
			logged = text
			log.Error(message+"; retrying", "error", err, "retryIn", retryInterval)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// Serve serves requests until ctx ends, then gives active requests a short time to finish. It always closes the
// listener. The end of ctx is not an error. At most 256 connections are open; beyond that the client with the most
// loses its oldest one.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := newServer(handler, log)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(LimitListener(listener, maxConnections)) }()

	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	// Shutdown needs a context that outlives ctx.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		// A request is still active, but the program ends, so its connection is closed.
		if err := server.Close(); err != nil {
			return fmt.Errorf("close the HTTP connections of %s: %w", listener.Addr(), err)
		}
	}
	// If ctx ended before the server started, it closes the listener only now.
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	}
	return nil
}

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
