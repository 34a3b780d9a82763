package server

import (
	"context"
	"net/http"
	"time"
)

// Drain returns the context for Start, and for everything that the server needs while it still responds, such as
// caches. When stop ends, the server starts to drain; the returned context ends only after ShutdownDelay.
func (s *Server) Drain(stop context.Context) context.Context {
	serving, cancel := context.WithCancel(context.WithoutCancel(stop))
	go func() {
		defer cancel()
		<-stop.Done()
		<-s.drain()
	}()
	return serving
}

// drain starts draining unless it has started already. The channel is closed after ShutdownDelay.
//
// It does not use net/http's SetKeepAlivesEnabled(false), which closes idle connections at once, and so loses the
// reviews that are just being sent on them.
func (s *Server) drain() <-chan struct{} {
	s.drainOnce.Do(func() {
		close(s.draining)
		s.options.Log.Info("draining: not ready, still serving all requests", "delay", s.options.ShutdownDelay)
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

// withConnectionClose adds "Connection: close" to each response that is written while draining. The client's next
// connection then goes to a server that is not draining. It also does so while there are too many connections.
func (s *Server) withConnectionClose(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&closingWriter{ResponseWriter: w, server: s}, r)
	})
}

// closingWriter decides as late as possible, when the header is written.
type closingWriter struct {
	http.ResponseWriter
	server *Server
}

// WriteHeader is called for every response, by our handlers and by net/http's own for unknown paths.
func (w *closingWriter) WriteHeader(code int) {
	if w.server.isDraining() || w.server.isOverloaded() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is required by http.ResponseController and http.MaxBytesReader.
func (w *closingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
