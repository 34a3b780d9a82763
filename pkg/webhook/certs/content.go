package certs

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// The keys of the Secret. The first two are those of type kubernetes.io/tls.
const (
	leafKey       = "tls.crt" // what is served, and what is between it and its CA
	leafKeyKey    = "tls.key"
	bundleKey     = "ca.crt" // the CAs to trust, the newest first
	authorityKey  = "ca.key" // the key of the one of them that signs
	untilNotation = "vicinity.dev/older-authorities-until"
)

// Content is what the Secret says. What cannot be used is nil, and Problems say why.
type Content struct {
	// Trusted are the CAs to trust.
	Trusted bundle
	// Signer is the one of them whose key is known.
	Signer *authority
	// Leaf is what is served.
	Leaf *tls.Certificate
	// OlderUntil is until when the other CAs may be needed. Zero means that nobody knows.
	OlderUntil time.Time
	// Problems are what was wrong, for a person. No key is in them.
	Problems []string
}

// ReadContent reads the data and the annotations of the Secret. Anybody may have written it.
func ReadContent(data map[string][]byte, annotations map[string]string) *Content {
	c := &Content{}
	trusted, problems := readBundle(data[bundleKey])
	c.Trusted = trusted
	for _, problem := range problems {
		c.refuse(bundleKey, errors.New(problem))
	}
	signer, err := readSigner(data[authorityKey], trusted)
	if err != nil {
		c.refuse(authorityKey, err)
	}
	leaf, err := readLeaf(data[leafKey], data[leafKeyKey])
	if err != nil {
		c.refuse(leafKey, err)
	}
	c.Signer, c.Leaf = signer, leaf
	if text := annotations[untilNotation]; text != "" {
		if c.OlderUntil, err = time.Parse(time.RFC3339, text); err != nil {
			c.refuse("annotation "+untilNotation, errors.New("it is no time as in RFC 3339"))
		}
	}
	return c
}

func (c *Content) refuse(part string, err error) {
	c.Problems = append(c.Problems, fmt.Sprintf("%s: %v", part, err))
}

// readSigner reads the key of a CA, and finds the CA. Errors say nothing of what is in the key.
func readSigner(text []byte, trusted bundle) (*authority, error) {
	key, err := readKey(text)
	if err != nil {
		return nil, err
	}
	for _, certificate := range trusted {
		if sameKey(certificate, key) {
			return &authority{certificate, key}, nil
		}
	}
	return nil, fmt.Errorf("it is the key of no CA in %s", bundleKey)
}

func readKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != keyBlock {
		return nil, errors.New("there is no PEM of a private key in PKCS #8")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is no private key in PKCS #8")
	}
	key, signs := parsed.(crypto.Signer)
	if !signs {
		return nil, errors.New("it is a key that cannot sign")
	}
	return key, nil
}

func readLeaf(certificate, key []byte) (*tls.Certificate, error) {
	if len(certificate) == 0 || len(key) == 0 {
		return nil, fmt.Errorf("there is none, or no %s", leafKeyKey)
	}
	pair, err := tls.X509KeyPair(certificate, key) // it also finds that they do not belong together
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

// data returns what the Secret should have to say this.
func (c *Content) data() (map[string][]byte, error) {
	data := map[string][]byte{bundleKey: c.Trusted.encode()}
	key, err := encodeKey(c.Signer.Key)
	if err != nil {
		return nil, err
	}
	data[authorityKey] = key
	if data[leafKeyKey], err = encodeKey(c.Leaf.PrivateKey); err != nil {
		return nil, err
	}
	for _, raw := range c.Leaf.Certificate {
		data[leafKey] = append(data[leafKey], pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: raw})...)
	}
	return data, nil
}

// annotations returns the annotations that go with the data. One that is not needed is empty.
func (c *Content) annotations() map[string]string {
	if c.OlderUntil.IsZero() {
		return map[string]string{untilNotation: ""}
	}
	return map[string]string{untilNotation: c.OlderUntil.UTC().Format(time.RFC3339)}
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errors.New("encode a key: it is of an unknown kind")
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: encoded}), nil
}
