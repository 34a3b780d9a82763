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

// The bounds. Both servers answer small questions from a kubelet or a Prometheus nearby; a client slower than this is
// broken or means harm, and must not hold a connection open for ever.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute // longer than the usual scrape interval, so that a scraper keeps its connection
	headerBytes   = 16 << 10

	// shutdownTimeout is how long running answers may take to finish once the program ends.
	shutdownTimeout = 2 * time.Second
)

// listenAgain is the pause before another try to listen on an address that another process may have.
const listenAgain = 5 * time.Second

// Again serves again and again, with pauses, until serve returns nil or ctx ends: connections to Services must not depend
// on an address that is not available. It logs each new error once, and not with every try.
func Again(ctx context.Context, log *slog.Logger, failed string, serve func() error) {
	logged := ""
	for ctx.Err() == nil {
		err := serve()
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != logged {
			logged = text
			log.Error(failed+"; trying again", "error", err, "retryIn", listenAgain)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

// Serve answers requests until ctx ends, then lets running answers finish for a moment. It closes the listener in any
// case. The end of ctx is not an error. There are at most 256 connections at once; a client with most of them loses its
// oldest one to the next that comes.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := newServer(handler, log)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Bounded(listener, maxConnections)) }()

	select {
	case err := <-ended:
		return fmt.Errorf("serving HTTP on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	// Shutdown needs a context that outlives ctx.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		// A client is still being answered, but the program ends, so the connection is cut.
		if err := server.Close(); err != nil {
			return fmt.Errorf("closing the HTTP connections of %s: %w", listener.Addr(), err)
		}
	}
	// If ctx ended before the server had begun, it closes the listener only now.
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", listener.Addr(), err)
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
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
