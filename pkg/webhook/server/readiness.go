package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// Ready returns why the server should get no reviews now; nil if it should. A liveness probe must not use it: a
// restarted process would have the same certificate and an empty cache.
func (s *Server) Ready() error {
	cert, err := s.options.Certificate(&tls.ClientHelloInfo{})
	now := time.Now()
	switch {
	case s.isDraining():
		return errors.New("the server is draining, and will stop")
	case !s.listening.Load():
		return errors.New("the server is not listening yet")
	case err != nil:
		return fmt.Errorf("no certificate to serve: %w", err)
	case now.After(cert.Leaf.NotAfter):
		return fmt.Errorf("the certificate expired at %s", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.Leaf.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", cert.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if err := s.options.Synced(); err != nil {
		return fmt.Errorf("caches not synced: %w", err)
	}
	return nil
}
