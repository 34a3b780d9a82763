package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// readiness is what decides whether reviews should come here.
type readiness struct {
	Listening bool
	Draining  bool
	// Certificate is the one that is served, and CertificateError why there is none.
	Certificate      *x509.Certificate
	CertificateError error
	// Unsynced is what is not known yet about the cluster; nil if everything is known.
	Unsynced error
}

// check returns why no reviews should come at this moment; nil if they should.
func (r readiness) check(now time.Time) error {
	switch {
	case r.Draining:
		return errors.New("the server is draining: it answers what still comes, and ends soon")
	case !r.Listening:
		return errors.New("the server does not listen yet")
	case r.CertificateError != nil:
		return fmt.Errorf("there is no certificate to serve: %w", r.CertificateError)
	case now.After(r.Certificate.NotAfter):
		return fmt.Errorf("the certificate expired at %s", r.Certificate.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(r.Certificate.NotBefore):
		return fmt.Errorf("the certificate is valid only from %s on", r.Certificate.NotBefore.UTC().Format(time.RFC3339))
	case r.Unsynced != nil:
		return fmt.Errorf("the cluster is not known yet: %w", r.Unsynced)
	}
	return nil
}

// Ready returns why the server should get no reviews now; nil if it should. A liveness probe must not ask it: a new
// process would have the same certificate and know less.
func (s *Server) Ready() error { return s.readiness().check(time.Now()) }

// readiness is what Ready judges.
func (s *Server) readiness() readiness {
	now := readiness{Listening: s.listening.Load(), Draining: s.isDraining()}
	now.Certificate, now.CertificateError = served(s.options.Certificate)
	if s.options.Synced != nil {
		now.Unsynced = s.options.Synced()
	}
	return now
}

// served is the certificate that a client gets.
func served(source func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*x509.Certificate, error) {
	pair, err := source(&tls.ClientHelloInfo{})
	switch {
	case err != nil:
		return nil, err
	case pair == nil || len(pair.Certificate) == 0:
		return nil, errors.New("it is not loaded yet")
	case pair.Leaf != nil:
		return pair.Leaf, nil
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return leaf, nil
}
