package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// backdate is how far a certificate's validity begins in the past, for API servers and replicas whose clocks are behind.
const backdate = time.Hour

// authority is a CA that can sign.
type authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// newAuthority makes a CA that is valid for a lifetime from now.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(now, now.Add(lifetime))
	if err != nil {
		return nil, err
	}
	// The number tells one CA from the next for a person who reads a bundle.
	template.Subject = pkix.Name{CommonName: "Vicinity webhook CA", SerialNumber: template.SerialNumber.Text(16)}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	certificate, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign a new CA: %w", err)
	}
	return &authority{certificate, key}, nil
}

// issue makes a key and a certificate for a server with these DNS names. It is valid for a lifetime from now, and never longer than its CA.
func (a *authority) issue(now time.Time, lifetime time.Duration, names []string) (*tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	until := now.Add(lifetime)
	if a.Certificate.NotAfter.Before(until) {
		until = a.Certificate.NotAfter
	}
	template, err := newTemplate(now, until)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "Vicinity webhook"}
	template.DNSNames = names
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	certificate, err := sign(template, a.Certificate, key.Public(), a.Key)
	if err != nil {
		return nil, fmt.Errorf("sign a new certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}, nil
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func newTemplate(now, until time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-backdate), NotAfter: until}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	encoded, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(encoded)
}

// sameKey reports whether a certificate is for a key.
func sameKey(certificate *x509.Certificate, key crypto.Signer) bool {
	public, compares := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return compares && public.Equal(key.Public())
}

// usableCA returns why a certificate cannot be trusted as a CA of servers, whatever the time.
func usableCA(certificate *x509.Certificate) error {
	switch {
	case !certificate.BasicConstraintsValid || !certificate.IsCA:
		return errors.New("it is no CA")
	case certificate.KeyUsage != 0 && certificate.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("it is a CA that may not sign certificates")
	}
	return nil
}
