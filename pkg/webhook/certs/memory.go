package certs

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// Configuration is a webhook configuration that exists.
type Configuration struct {
	// Name tells it from others: its kind and its name.
	Name string
	// Bundles are the caBundle of each of its webhooks.
	Bundles [][]byte
	// Unknown: it could not be read just now, and may trust anything.
	Unknown bool
}

// Memory is what a replica remembers from one look at the cluster to the next. The zero value is that of one that has just started.
type Memory struct {
	// Served is the certificate; nil if there is none yet.
	Served *tls.Certificate
	// ServedBy are the CAs that were trusted together with it.
	ServedBy bundle
	// trustedSince is when this replica first saw that every configuration trusts a CA, and has seen nothing else since.
	trustedSince map[fingerprint]time.Time
}

// fingerprint is a certificate as a map key: all of it.
type fingerprint string

func fingerprintOf(certificate *x509.Certificate) fingerprint { return fingerprint(certificate.Raw) }

// Observe returns what a replica remembers, and what it serves, after a look at the configurations and then at the Secret, which is nil
// if there is none. Configurations must have been read first.
func (m Memory) Observe(now time.Time, content *Content, configurations []Configuration, settings Settings) Memory {
	next := m
	next.trustedSince = m.stillTrusted(now, content, configurations)
	if content == nil || content.Leaf == nil {
		return next
	}
	authority, err := content.Trusted.verify(content.Leaf, settings.Names[0], now)
	if err == nil && next.mayServe(now, content.Leaf, authority, configurations, settings) {
		next.Served = content.Leaf
	}
	if next.usable(now, content.Trusted, settings) {
		next.ServedBy = content.Trusted
	}
	return next
}

// stillTrusted tells since when every configuration has trusted the CAs that may sign.
func (m Memory) stillTrusted(now time.Time, content *Content, configurations []Configuration) map[fingerprint]time.Time {
	since := map[fingerprint]time.Time{}
	if content == nil {
		return since
	}
	for _, certificate := range content.Trusted {
		if !trustedByAll(configurations, certificate) {
			continue
		}
		since[fingerprintOf(certificate)] = now
		if before, known := m.trustedSince[fingerprintOf(certificate)]; known {
			since[fingerprintOf(certificate)] = before
		}
	}
	return since
}

func trustedByAll(configurations []Configuration, certificate *x509.Certificate) bool {
	for _, configuration := range configurations {
		if configuration.Unknown {
			return false
		}
		for _, text := range configuration.Bundles {
			if trusted, _ := readBundle(text); !trusted.has(certificate) {
				return false
			}
		}
	}
	return true
}

// settled reports whether all API servers trust a CA, and otherwise when they will: zero if that is not known. Without a
// configuration nobody calls, and nothing needs to be trusted.
func (m Memory) settled(
	now time.Time, certificate *x509.Certificate, configurations []Configuration, settings Settings,
) (at time.Time, settled bool) {
	if len(configurations) == 0 {
		return time.Time{}, true
	}
	since, trusted := m.trustedSince[fingerprintOf(certificate)]
	if !trusted {
		return time.Time{}, false
	}
	at = since.Add(settings.Settle)
	return at, !now.Before(at)
}

// mayServe reports whether a certificate may be served from now on. As long as what is served can be used, it must not be worse: a Secret
// that somebody has replaced has a CA that no API server trusts yet.
func (m Memory) mayServe(
	now time.Time, leaf *tls.Certificate, authority *x509.Certificate, configurations []Configuration, settings Settings,
) bool {
	if m.Served == nil || !m.usable(now, m.ServedBy, settings) || m.refusedByAll(now, configurations, settings) {
		return true
	}
	_, settled := m.settled(now, authority, configurations, settings)
	return settled || leaf.Leaf.Equal(m.Served.Leaf)
}

// usable reports whether what is served convinces a client that trusts these CAs.
func (m Memory) usable(now time.Time, trusted bundle, settings Settings) bool {
	if m.Served == nil {
		return false
	}
	_, err := trusted.verify(m.Served, settings.Names[0], now)
	return err == nil
}

// refusedByAll reports whether no configuration trusts what is served, so that nothing is lost by serving something else.
func (m Memory) refusedByAll(now time.Time, configurations []Configuration, settings Settings) bool {
	for _, configuration := range configurations {
		if configuration.Unknown {
			return false
		}
		for _, text := range configuration.Bundles {
			if trusted, _ := readBundle(text); m.usable(now, trusted, settings) {
				return false
			}
		}
	}
	return true
}
