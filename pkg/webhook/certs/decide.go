package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"
)

// view is the input of a replica's decisions.
type view struct {
	now time.Time
	// content is the content of the Secret; nil if there is none.
	content        *content
	configurations []configuration
	// trustedSince is when this replica first saw that every configuration trusts the CA that signs; zero if they do not.
	trustedSince time.Time
}

// configuration is an existing webhook configuration.
type configuration struct {
	resource string
	version  string
	bundles  []string // the caBundle of each of its webhooks
	// unknown is set if it could not be read; it may trust anything.
	unknown bool
}

// action is what a step does.
type action string

// The actions.
const (
	createSecret action = "created the Secret"
	addCA        action = "added a CA" // to the Secret; it signs from now on
	patchBundle  action = "patched a caBundle"
	issueLeaf    action = "issued a certificate"
	dropOlderCAs action = "dropped older CAs" // that are no longer needed
	pause        action = "wait"
)

// step is an action and its reason.
type step struct {
	action action
	reason string
	// configuration is the one to patch.
	configuration configuration
	// until is when to reconcile again at the latest.
	until time.Time
}

// decide returns the next steps in order. They are independent: a failed step does not stop the others. Only the last
// one concerns the Secret, and it may be a pause.
func (v view) decide(settings Settings) []step {
	if v.content == nil {
		return []step{{action: createSecret, reason: "the Secret does not exist"}}
	}
	var steps []step
	wantBundle := string(v.content.trusted.encode())
	for _, configuration := range v.configurations {
		// A Secret without a CA is repaired first.
		if wantBundle != "" && !configuration.unknown &&
			slices.ContainsFunc(configuration.bundles, func(have string) bool { return have != wantBundle }) {
			steps = append(steps, step{action: patchBundle, configuration: configuration, reason: "the caBundle differs from the Secret"})
		}
	}
	return append(steps, v.secretStep(settings))
}

func (v view) secretStep(settings Settings) step {
	if reason := v.signerReason(settings); reason != "" {
		return step{action: addCA, reason: reason}
	}
	if reason, isUsable := v.leafReason(settings); reason != "" {
		settledAt, isSettled := v.trustSettled(settings)
		if isSettled || !isUsable {
			return step{action: issueLeaf, reason: reason}
		}
		// The served certificate stays until it expires, even if an API server does not trust the new CA by then.
		expired := v.content.leaf.Leaf.NotAfter.Add(time.Second)
		return step{action: pause, reason: reason + "; API servers may not trust the new CA yet", until: minTime(settledAt, expired)}
	}
	nextRenewal := minTime(renewalTime(v.content.signer.Certificate, settings.CA), renewalTime(v.content.leaf.Leaf, settings.Leaf))
	if len(v.content.trusted) > 1 {
		olderExpiry := v.content.olderValidUntil(settings)
		if v.now.After(olderExpiry) {
			return step{action: dropOlderCAs, reason: "all certificates of older CAs have expired"}
		}
		nextRenewal = minTime(nextRenewal, olderExpiry.Add(time.Second))
	}
	return step{action: pause, reason: "nothing is due", until: nextRenewal}
}

// renewalTime returns when a certificate is renewed: when a third of a lifetime is left. Its own validity period does
// not matter, so certificates of other programs are treated alike.
func renewalTime(certificate *x509.Certificate, lifetime time.Duration) time.Time {
	return certificate.NotAfter.Add(-lifetime / 3)
}

// signerReason returns why a new CA is needed; empty if it is not.
func (v view) signerReason(settings Settings) string {
	if v.content.signer == nil {
		return "the Secret has no CA with its key"
	}
	certificate := v.content.signer.Certificate
	if err := checkValidity(certificate, v.now); err != nil {
		return fmt.Sprintf("the CA cannot be used: %v", err)
	}
	if !v.now.Before(renewalTime(certificate, settings.CA)) {
		return fmt.Sprintf("the CA expires at %s", certificate.NotAfter.Format(time.RFC3339))
	}
	return ""
}

// leafReason returns why a new certificate is needed, empty if none is, and whether the current one is usable until
// then.
func (v view) leafReason(settings Settings) (reason string, isUsable bool) {
	if v.content.leaf == nil {
		return "the Secret has no certificate with its key", false
	}
	for _, name := range settings.Names {
		if _, err := v.content.trusted.verify(v.content.leaf, name, v.now); err != nil {
			return fmt.Sprintf("the certificate cannot be used: %v", err), false
		}
	}
	certificate := v.content.leaf.Leaf
	if _, err := (bundle{v.content.signer.Certificate}).verify(v.content.leaf, settings.Names[0], v.now); err != nil {
		return "an older CA issued the certificate", true
	}
	if !v.now.Before(renewalTime(certificate, settings.Leaf)) {
		return fmt.Sprintf("the certificate expires at %s", certificate.NotAfter.Format(time.RFC3339)), true
	}
	return "", true
}

// trustSettled reports whether all API servers trust the CA that signs, and if not, when they will: zero if that is
// unknown. Without a configuration no API server calls the webhook, so nothing needs to be trusted.
func (v view) trustSettled(settings Settings) (settledAt time.Time, isSettled bool) {
	if len(v.configurations) == 0 {
		return time.Time{}, true
	}
	if v.trustedSince.IsZero() {
		return time.Time{}, false
	}
	settledAt = v.trustedSince.Add(settings.TrustDelay)
	return settledAt, !v.now.Before(settledAt)
}

// trust is when a replica first saw that every configuration trusts a CA.
type trust struct {
	authority *x509.Certificate
	since     time.Time
}

// observe returns the trust in the CA that signs, given the configurations and the content of the Secret, which must
// have been read after them. The zero value means no trust.
func (t trust) observe(now time.Time, content *content, configurations []configuration) trust {
	if content == nil || content.signer == nil {
		return trust{}
	}
	signer := content.signer.Certificate
	wantCA := string(bundle{signer}.encode())
	lacksCA := func(bundle string) bool { return !strings.Contains(bundle, wantCA) }
	for _, configuration := range configurations {
		if configuration.unknown || slices.ContainsFunc(configuration.bundles, lacksCA) {
			return trust{}
		}
	}
	if t.authority != nil && t.authority.Equal(signer) {
		return t
	}
	return trust{signer, now}
}

// olderValidUntil returns until when a certificate of an older CA may be valid: older CAs have signed nothing since the
// current one was created. Times in certificates have a resolution of seconds.
func (c *content) olderValidUntil(settings Settings) time.Time {
	return c.signer.Certificate.NotBefore.Add(backdate + settings.Leaf + 2*time.Second)
}

// contentAfter returns the content of the Secret after a step.
func (v view) contentAfter(act action, settings Settings) (*content, error) {
	var next content
	if v.content != nil {
		next = *v.content
	}
	var err error
	switch act {
	case createSecret, addCA:
		if next.signer, err = newAuthority(v.now, settings.CA); err != nil {
			return nil, err
		}
		next.trusted = bundle{next.signer.Certificate}.with(next.trusted.withoutExpired(v.now)...)
		if next.leaf != nil {
			if _, err := next.trusted.verify(next.leaf, settings.Names[0], v.now); err == nil {
				return &next, nil
			}
		}
		// There is no certificate of a trusted CA that the replicas could serve.
		next.leaf, err = next.signer.issue(v.now, settings.Leaf, settings.Names)
	case issueLeaf:
		next.leaf, err = next.signer.issue(v.now, settings.Leaf, settings.Names)
	case dropOlderCAs:
		next.trusted = bundle{next.signer.Certificate}
	case patchBundle, pause: // no change
	}
	return &next, err
}

// minTime returns the earliest non-zero time; zero if there is none.
func minTime(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
