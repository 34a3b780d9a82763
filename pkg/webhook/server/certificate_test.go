package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// certificate returns a self-signed certificate for a server on this machine.
func certificate(t testing.TB, notBefore, notAfter time.Time) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, NotBefore: notBefore, NotAfter: notAfter,
		DNSNames: []string{"vicinity-webhook.vicinity-system.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func validCertificate(t testing.TB) *tls.Certificate {
	t.Helper()
	return certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// bundle returns the caBundle for a certificate.
func bundle(pair *tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
}

func clientTLSConfig(pairs ...*tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	for _, pair := range pairs {
		roots.AddCert(pair.Leaf)
	}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}
