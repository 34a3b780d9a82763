package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"
)

// backdate is how far a certificate's validity starts in the past, for API servers and replicas whose clocks are
// behind.
const backdate = time.Hour

// authority is a CA with its key.
type authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// newAuthority generates a CA that is valid for a lifetime from now.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	template := x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	// The time distinguishes CAs for a person who reads a bundle.
	template.Subject = pkix.Name{CommonName: "Vicinity webhook CA", SerialNumber: now.UTC().Format(time.RFC3339)}
	certificate, key, err := sign(&template, nil)
	if err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	return &authority{certificate, key}, nil
}

// issue generates a key and a certificate for a server with these DNS names. It is valid for a lifetime from now, but
// never longer than its CA.
func (a *authority) issue(now time.Time, lifetime time.Duration, names []string) (*tls.Certificate, error) {
	template := x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime), Subject: pkix.Name{CommonName: "Vicinity webhook"}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if a.Certificate.NotAfter.Before(template.NotAfter) {
		template.NotAfter = a.Certificate.NotAfter
	}
	certificate, key, err := sign(&template, a)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	leaf := &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}
	for _, name := range names { // an invalid name would be retried forever
		if _, err := (bundle{a.Certificate}).verify(leaf, name, now); err != nil {
			return nil, fmt.Errorf("issue certificate: not valid for %q: %w", name, err)
		}
	}
	return leaf, nil
}

// sign generates a key and a certificate for it, signed by issuer. A nil issuer means self-signed. crypto/x509 chooses
// the serial number.
func sign(template *x509.Certificate, issuer *authority) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if issuer == nil {
		issuer = &authority{template, key}
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.Key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(encoded)
	return certificate, key, err
}
