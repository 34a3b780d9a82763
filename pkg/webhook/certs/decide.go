package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// Action is what a step does.
type Action string

// The actions.
const (
	// CreateSecret creates it, with a new CA. What is served goes in too, if it can be used.
	CreateSecret Action = "create the Secret"
	// AddCA puts a new CA into the Secret, which signs from now on.
	AddCA Action = "add a CA"
	// KeepOlder puts the CAs of what is served into the Secret, or notes until when older ones may be needed.
	KeepOlder Action = "keep older CAs"
	// PatchBundle makes a webhook configuration trust what the Secret says.
	PatchBundle Action = "patch a caBundle"
	// IssueLeaf puts a new certificate into the Secret.
	IssueLeaf Action = "issue a certificate"
	// DropOlder takes CAs out of the Secret that nothing needs any more.
	DropOlder Action = "drop older CAs"
	// Wait does nothing.
	Wait Action = "wait"
)

// Step is something to do, and why.
type Step struct {
	Do     Action
	Reason string
	// Configuration is the one to patch.
	Configuration string
	// Until is when to look again, whatever happens; zero if only a change can change anything.
	Until time.Time
}

// Decide returns the next steps, in their order. They are independent of each other: one that fails stops none. Only the last one concerns
// the Secret, and it may be to wait.
func Decide(now time.Time, content *Content, memory Memory, configurations []Configuration, settings Settings) []Step {
	if content == nil {
		return []Step{{Do: CreateSecret, Reason: "there is none"}}
	}
	// First, since a patch with these CAs alone would end the trust in what is served.
	if memory.usable(now, memory.ServedBy, settings) && !memory.usable(now, content.Trusted, settings) {
		if reason := signerReason(now, content, settings); reason != "" {
			return []Step{{Do: AddCA, Reason: reason}}
		}
		return []Step{{Do: KeepOlder, Reason: "the Secret does not trust what is served"}}
	}
	steps := patches(content, configurations)
	return append(steps, secretStep(now, content, memory, configurations, settings))
}

// patches are for the configurations that trust something else than the Secret. A Secret without a CA is mended first.
func patches(content *Content, configurations []Configuration) []Step {
	want := content.Trusted.encode()
	var steps []Step
	for _, configuration := range configurations {
		if len(want) == 0 || configuration.Unknown {
			continue
		}
		if slices.ContainsFunc(configuration.Bundles, func(have []byte) bool { return string(have) != string(want) }) {
			steps = append(steps, Step{Do: PatchBundle, Configuration: configuration.Name, Reason: "its caBundle is not what the Secret says"})
		}
	}
	return steps
}

func secretStep(now time.Time, content *Content, memory Memory, configurations []Configuration, settings Settings) Step {
	if reason := signerReason(now, content, settings); reason != "" {
		return Step{Do: AddCA, Reason: reason}
	}
	if reason := leafReason(now, content, settings); reason != "" {
		return issueStep(now, content, memory, configurations, settings, reason)
	}
	if reason := dropReason(now, content); reason != "" {
		return Step{Do: DropOlder, Reason: reason}
	}
	if reason := untilReason(now, content, settings); reason != "" {
		return Step{Do: KeepOlder, Reason: reason}
	}
	return Step{
		Do: Wait, Reason: "nothing is due",
		Until: earliest(nextDue(content, settings), servedAt(now, content, memory, configurations, settings)),
	}
}

// servedAt is when this replica can serve what others serve already, who have trusted its CA for longer; zero if it does so too, or if
// only a change of a configuration helps.
func servedAt(now time.Time, content *Content, memory Memory, configurations []Configuration, settings Settings) time.Time {
	if memory.Served == nil || memory.Served.Leaf.Equal(content.Leaf.Leaf) {
		return time.Time{}
	}
	at, _ := memory.settled(now, content.Signer.Certificate, configurations, settings)
	return earliest(at, memory.Served.Leaf.NotAfter.Add(time.Second))
}

// dueAt is when a certificate is renewed: when a third of a lifetime is left. It does not matter how long it was valid before, so that
// one of somebody else is treated alike.
func dueAt(certificate *x509.Certificate, lifetime time.Duration) time.Time {
	return certificate.NotAfter.Add(-lifetime / 3)
}

// signerReason says why a new CA is needed.
func signerReason(now time.Time, content *Content, settings Settings) string {
	if content.Signer == nil {
		return "the Secret has no CA with its key"
	}
	if err := valid(content.Signer.Certificate, now); err != nil {
		return fmt.Sprintf("the CA cannot be used: %v", err)
	}
	if !now.Before(dueAt(content.Signer.Certificate, settings.CA)) {
		return fmt.Sprintf("the CA expires at %s", content.Signer.Certificate.NotAfter.Format(time.RFC3339))
	}
	return ""
}

// leafReason says why a new certificate is needed, and whether what is there can be used meanwhile.
func leafReason(now time.Time, content *Content, settings Settings) string {
	if content.Leaf == nil {
		return "the Secret has no certificate with its key"
	}
	for _, name := range settings.Names {
		if _, err := content.Trusted.verify(content.Leaf, name, now); err != nil {
			return fmt.Sprintf("the certificate cannot be used: %v", err)
		}
	}
	if _, err := (bundle{content.Signer.Certificate}).verify(content.Leaf, settings.Names[0], now); err != nil {
		return "the certificate is of an older CA"
	}
	if !now.Before(dueAt(content.Leaf.Leaf, settings.Leaf)) {
		return fmt.Sprintf("the certificate expires at %s", content.Leaf.Leaf.NotAfter.Format(time.RFC3339))
	}
	return ""
}

// issueStep issues a certificate as soon as everybody trusts its CA; at once if there is none to serve until then.
func issueStep(
	now time.Time, content *Content, memory Memory, configurations []Configuration, settings Settings, reason string,
) Step {
	at, settled := memory.settled(now, content.Signer.Certificate, configurations, settings)
	if settled || !memory.usable(now, content.Trusted, settings) {
		return Step{Do: IssueLeaf, Reason: reason}
	}
	// What is served goes on until it expires, whoever trusts the new CA by then.
	expired := memory.Served.Leaf.NotAfter.Add(time.Second)
	return Step{Do: Wait, Reason: reason + "; API servers may not trust its CA yet", Until: earliest(at, expired)}
}

// dropReason says why something leaves the bundle. The certificate is of the CA that signs.
func dropReason(now time.Time, content *Content) string {
	switch {
	case len(content.Trusted.unexpired(now)) < len(content.Trusted):
		return "a CA has expired"
	case len(content.Trusted) > 1 && !content.OlderUntil.IsZero() && now.After(content.OlderUntil):
		return "no certificate of an older CA is valid any more"
	}
	return ""
}

// untilReason says why it must be noted until when older CAs may be needed.
func untilReason(now time.Time, content *Content, settings Settings) string {
	if len(content.Trusted) > 1 && (content.OlderUntil.IsZero() || content.OlderUntil.After(now.Add(2*settings.CA))) {
		return "it is not known until when older CAs are needed"
	}
	return ""
}

// nextDue is when something is due by the passing of time alone.
func nextDue(content *Content, settings Settings) time.Time {
	next := earliest(dueAt(content.Signer.Certificate, settings.CA), dueAt(content.Leaf.Leaf, settings.Leaf))
	for _, certificate := range content.Trusted {
		next = earliest(next, certificate.NotAfter.Add(time.Second))
	}
	if len(content.Trusted) > 1 {
		next = earliest(next, content.OlderUntil.Add(time.Second))
	}
	return next
}

// earliest returns the earliest of some times. Zero is none.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}
