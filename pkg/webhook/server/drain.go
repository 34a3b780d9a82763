package server

import (
	"context"
	"net/http"
	"time"
)

// Drain returns the context for Start, and for all that a server that still answers needs, such as caches. When stop
// ends, the server begins to drain; the context ends only when the delay is over.
func (s *Server) Drain(stop context.Context) context.Context {
	serving, cancel := context.WithCancel(context.WithoutCancel(stop))
	go func() {
		defer cancel()
		<-stop.Done()
		<-s.drain()
	}()
	return serving
}

// drain begins draining if that has not begun yet. The channel is closed when the delay is over.
//
// net/http's own SetKeepAlivesEnabled(false) is not used: it closes the connections that idle at once, and with them
// the reviews that are just being sent on them.
func (s *Server) drain() <-chan struct{} {
	s.drainOnce.Do(func() {
		close(s.draining)
		s.options.Log.Info("draining: no longer ready, still answering all requests", "delay", s.options.ShutdownDelay)
		time.AfterFunc(s.options.ShutdownDelay, func() { close(s.drained) })
	})
	return s.drained
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// closesConnections asks the client of each answer that is written while draining to close its connection. The next
// one that it opens goes to a server that stays. It asks so too while there are too many connections (see
// maxConnections).
func (s *Server) closesConnections(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&closingWriter{ResponseWriter: w, server: s}, r)
	})
}

// closingWriter decides at the last moment, when the header is written.
type closingWriter struct {
	http.ResponseWriter
	server *Server
}

// WriteHeader is called for every answer, by our handlers and by net/http's own for paths that are not served.
func (f *closingWriter) WriteHeader(code int) {
	if f.server.isDraining() || f.server.isOverloaded() {
		f.Header().Set("Connection", "close")
	}
	f.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController, and for http.MaxBytesReader.
func (f *closingWriter) Unwrap() http.ResponseWriter { return f.ResponseWriter }
