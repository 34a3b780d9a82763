package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Source is where a server has its certificate from.
type Source interface {
	// GetCertificate is for tls.Config. It returns an error as long as there is no certificate.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run keeps the certificate up to date until the context ends, and then returns nil.
	Run(ctx context.Context) error
}

var (
	_ Source = (*SelfMade)(nil)
	_ Source = (*Files)(nil)
)

// Expiry is until when a certificate is valid, and the CA behind it. A CA that is not known is zero.
type Expiry struct {
	Leaf, CA time.Time
}

// Observer is told what happened. Its methods return at once.
type Observer interface {
	// CertificateExpires tells until when the certificate is valid that is served from now on.
	CertificateExpires(at time.Time)
	// AuthorityExpires tells until when the CA behind it is valid. It is not told of a CA that is not known.
	AuthorityExpires(at time.Time)
	// CertificateFailed tells that something failed, or that something unusable was found. What was served is served on, and it is
	// tried again.
	CertificateFailed(operation Operation, err error)
}

// Operation is what may fail.
type Operation string

// The operations.
const (
	ReadSecret         Operation = "read-secret"
	WriteSecret        Operation = "write-secret"
	ReadConfiguration  Operation = "read-configuration"
	PatchConfiguration Operation = "patch-configuration"
	Watch              Operation = "watch"
	UseSecret          Operation = "use-secret" // the Secret says something that cannot be used
	ReadFiles          Operation = "read-files" // or the files do
)

// Operations are all of them, for those who count.
func Operations() []Operation {
	return []Operation{ReadSecret, WriteSecret, ReadConfiguration, PatchConfiguration, Watch, UseSecret, ReadFiles}
}

// errNone is for a handshake, or a question, that comes too early.
var errNone = errors.New("no certificate is loaded yet")

// valid returns why a certificate is not valid at a time.
func valid(certificate *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(certificate.NotBefore):
		return fmt.Errorf("it is not valid before %s", certificate.NotBefore.Format(time.RFC3339))
	case now.After(certificate.NotAfter):
		return fmt.Errorf("it expired at %s", certificate.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// ready returns why a server has nothing to serve at a time.
func ready(served *tls.Certificate, now time.Time) error {
	if served == nil {
		return errNone
	}
	if err := valid(served.Leaf, now); err != nil {
		return fmt.Errorf("the certificate cannot be used: %w", err)
	}
	return nil
}

// told tells an observer what is served from now on.
func (e Expiry) told(observer Observer) {
	observer.CertificateExpires(e.Leaf)
	if !e.CA.IsZero() {
		observer.AuthorityExpires(e.CA)
	}
}
