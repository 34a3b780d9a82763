package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Source provides a server's certificate.
type Source interface {
	// GetCertificate is for tls.Config. It returns an error while there is no certificate.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run keeps the certificate up to date until the context ends, and then returns nil.
	Run(ctx context.Context) error
}

var (
	_ Source = (*SelfSigned)(nil)
	_ Source = (*Files)(nil)
)

// Observer receives events. Its methods must not block.
type Observer interface {
	// CertificateExpires is called when a new certificate is served, with the end of its validity.
	CertificateExpires(at time.Time)
	// AuthorityExpires is called with the end of validity of that certificate's CA, if the CA is known.
	AuthorityExpires(at time.Time)
	// CertificateFailed is called if an operation failed, or found something unusable. The last usable certificate is
	// still served, and the operation is retried.
	CertificateFailed(operation Operation, err error)
}

// Operation names an operation that may fail.
type Operation string

// The operations.
const (
	ReadSecret         Operation = "read_secret"
	WriteSecret        Operation = "write_secret"
	ReadConfiguration  Operation = "read_configuration"
	PatchConfiguration Operation = "patch_configuration"
	Watch              Operation = "watch"
	UseSecret          Operation = "use_secret" // the Secret contains something unusable
	ReadFiles          Operation = "read_files" // the files cannot be read or used
)

// Operations returns all operations, for counters that start at zero.
func Operations() []Operation {
	return []Operation{ReadSecret, WriteSecret, ReadConfiguration, PatchConfiguration, Watch, UseSecret, ReadFiles}
}

// served stores the certificate that a server serves. It may change at any time.
type served struct {
	current atomic.Pointer[tls.Certificate]
}

// GetCertificate returns the served certificate, from memory.
func (s *served) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := s.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New("no certificate is loaded yet")
}

// set serves a certificate from now on, and reports whether it differs from the previous one.
func (s *served) set(certificate *tls.Certificate) bool {
	previous := s.current.Swap(certificate)
	return previous == nil || !previous.Leaf.Equal(certificate.Leaf)
}

// checkValidity returns why a certificate is not valid at a time.
func checkValidity(certificate *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(certificate.NotBefore):
		return fmt.Errorf("not valid before %s", certificate.NotBefore.Format(time.RFC3339))
	case now.After(certificate.NotAfter):
		return fmt.Errorf("expired at %s", certificate.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// failures reports each error to an observer, and logs it if it differs from the last one of the same operation on the
// same object.
type failures struct {
	log      *slog.Logger
	observer Observer

	mu   sync.Mutex
	last map[string]string
}

// report reports the outcome of an operation on an object, and returns the error with the names of both. The end of the
// context is not a failure.
func (f *failures) report(ctx context.Context, operation Operation, object string, err error) error {
	text := ""
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", operation, object, err)
		if errors.Is(ctx.Err(), context.Canceled) {
			return err
		}
		text = err.Error()
		f.observer.CertificateFailed(operation, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[string]string{}
	}
	key := string(operation) + " " + object
	if text != "" && text != f.last[key] {
		f.log.Error("certificates: operation failed; retrying", "operation", string(operation), "object", object, "error", err)
	}
	f.last[key] = text
	return err
}
