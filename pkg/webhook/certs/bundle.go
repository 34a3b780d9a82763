package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

// The kinds of PEM blocks that are read and written.
const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY" // PKCS #8
)

// bundle is CAs to trust, the newest first. No CA is in it twice.
type bundle []*x509.Certificate

// readBundle reads PEM. What is no CA certificate is left out, and the problems say so.
func readBundle(text []byte) (bundle, []string) {
	var read bundle
	var problems []string
	number := 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		number++
		certificate, err := readCA(block)
		if err != nil {
			problems = append(problems, fmt.Sprintf("part %d: %v", number, err))
			continue
		}
		read = read.with(certificate)
	}
	if len(bytes.TrimSpace(text)) > 0 {
		problems = append(problems, "there is text that is not PEM")
	}
	return read, problems
}

func readCA(block *pem.Block) (*x509.Certificate, error) {
	if block.Type != certificateBlock {
		return nil, fmt.Errorf("it is a %q, and no certificate", block.Type)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	return certificate, usableCA(certificate)
}

// encode returns the PEM of all CAs; nil if there are none.
func (b bundle) encode() []byte {
	var text []byte
	for _, certificate := range b {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate.Raw})...)
	}
	return text
}

func (b bundle) has(certificate *x509.Certificate) bool {
	return slices.ContainsFunc(b, certificate.Equal)
}

// with returns the bundle with further CAs behind those it has.
func (b bundle) with(others ...*x509.Certificate) bundle {
	joined := slices.Clone(b)
	for _, other := range others {
		if !joined.has(other) {
			joined = append(joined, other)
		}
	}
	return joined
}

// unexpired returns those CAs that have not expired at a time. One that is not valid yet may be so by another replica's clock.
func (b bundle) unexpired(now time.Time) bundle {
	return slices.DeleteFunc(slices.Clone(b), func(certificate *x509.Certificate) bool { return now.After(certificate.NotAfter) })
}

// verify returns why a client that trusts these CAs would refuse a server with this name, and otherwise the CA that it would rely on.
func (b bundle) verify(served *tls.Certificate, name string, now time.Time) (*x509.Certificate, error) {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, certificate := range b {
		roots.AddCert(certificate)
	}
	for _, raw := range served.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(certificate)
		}
	}
	chains, err := served.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	return chains[0][len(chains[0])-1], nil
}
