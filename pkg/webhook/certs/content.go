package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The keys of the Secret. The first two are those of type kubernetes.io/tls.
const (
	leafEntry         = "tls.crt" // the served certificate and intermediates
	leafKeyEntry      = "tls.key"
	bundleEntry       = "ca.crt" // the trusted CAs, the newest first
	authorityKeyEntry = "ca.key" // the key of the CA that signs
)

// The types of PEM blocks that are read and written.
const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY" // PKCS #8
)

// content is the content of the Secret. Unusable parts are nil, and errs are the reasons.
type content struct {
	// trusted are the trusted CAs.
	trusted bundle
	// signer is the CA among them whose key is in the Secret.
	signer *authority
	// leaf is the certificate to serve.
	leaf *tls.Certificate
	// errs are the problems, in text form. They contain no key.
	errs []string
}

// readContent parses the data of the Secret, whichever program wrote it.
func readContent(data map[string][]byte) *content {
	c := &content{trusted: readBundle(data[bundleEntry])}
	if !bytes.Equal(bytes.TrimSpace(c.trusted.encode()), bytes.TrimSpace(data[bundleEntry])) {
		c.errs = append(c.errs, bundleEntry+": contains data other than CAs in PEM, or a duplicate")
	}
	var err error
	if c.signer, err = readSigner(data[authorityKeyEntry], c.trusted); err != nil {
		c.errs = append(c.errs, authorityKeyEntry+": "+err.Error())
	}
	leaf, err := tls.X509KeyPair(data[leafEntry], data[leafKeyEntry]) // this also fails if they do not match
	if err != nil {
		c.errs = append(c.errs, leafEntry+": "+err.Error())
	} else {
		c.leaf = &leaf
	}
	return c
}

// readSigner parses the key of a CA, and finds the CA. Errors contain no part of the key.
func readSigner(text []byte, trusted bundle) (*authority, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != keyBlock {
		return nil, errors.New("no PKCS #8 private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, canSign := parsed.(crypto.Signer)
	if err != nil || !canSign {
		return nil, errors.New("not a PKCS #8 private key that can sign")
	}
	for _, certificate := range trusted {
		public, isComparable := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if isComparable && public.Equal(key.Public()) {
			return &authority{certificate, key}, nil
		}
	}
	return nil, fmt.Errorf("private key does not match any CA in %s", bundleEntry)
}

// data returns the data of a Secret with this content.
func (c *content) data() (map[string][]byte, error) {
	data := map[string][]byte{bundleEntry: c.trusted.encode(), leafEntry: encode(certificateBlock, c.leaf.Certificate...)}
	for name, key := range map[string]crypto.PrivateKey{authorityKeyEntry: c.signer.Key, leafKeyEntry: c.leaf.PrivateKey} {
		encoded, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode %s: unsupported key type", name)
		}
		data[name] = encode(keyBlock, encoded)
	}
	return data, nil
}

// encode returns the PEM of some blocks; nil if there are none.
func encode(blockType string, blocks ...[]byte) (text []byte) {
	for _, block := range blocks {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: block})...)
	}
	return text
}

// bundle is a list of trusted CAs without duplicates, the newest first.
type bundle []*x509.Certificate

// readBundle parses the CAs in a PEM text, and ignores everything else.
func readBundle(text []byte) (read bundle) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && certificate.IsCA {
			read = read.with(certificate)
		}
	}
	return read
}

// encode returns the PEM of all CAs; nil if there are none.
func (b bundle) encode() (text []byte) {
	for _, certificate := range b {
		text = append(text, encode(certificateBlock, certificate.Raw)...)
	}
	return text
}

// with returns the bundle with further CAs appended.
func (b bundle) with(added ...*x509.Certificate) bundle {
	joined := slices.Clone(b)
	for _, certificate := range added {
		if !slices.ContainsFunc(joined, certificate.Equal) {
			joined = append(joined, certificate)
		}
	}
	return joined
}

// withoutExpired returns the CAs that have not expired at a time. One that is not valid yet is kept: it may be valid by
// another replica's clock.
func (b bundle) withoutExpired(now time.Time) bundle {
	return slices.DeleteFunc(slices.Clone(b), func(certificate *x509.Certificate) bool { return now.After(certificate.NotAfter) })
}

// verify returns the CA by which a client that trusts these CAs verifies a server with this name, or why verification
// fails.
func (b bundle) verify(served *tls.Certificate, name string, now time.Time) (*x509.Certificate, error) {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, certificate := range b {
		roots.AddCert(certificate)
	}
	for _, raw := range served.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(raw); err == nil {
			intermediates.AddCert(certificate)
		}
	}
	chains, err := served.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	return chains[0][len(chains[0])-1], nil
}
