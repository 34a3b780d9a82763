package certs

import (
	"fmt"
	"time"
)

// Apply returns what the Secret should say after a step. A step that does not concern the Secret leaves it as it is.
func (s Step) Apply(now time.Time, content *Content, memory Memory, settings Settings) (*Content, error) {
	next := Content{}
	if content != nil {
		next = *content
	}
	next.Problems = nil
	switch s.Do {
	case CreateSecret, AddCA:
		return next.withCA(now, memory, settings)
	case KeepOlder:
		return next.keeping(now, memory, settings), nil
	case IssueLeaf:
		return next.withLeaf(now, settings)
	case DropOlder:
		return next.withoutOlder(now), nil
	case PatchBundle, Wait:
	}
	return &next, nil
}

// withCA adds a CA, which signs from now on. The certificate stays, if it can be used; if not, what is served takes its place, or a new
// one: then nothing is trusted that anybody could go on with.
func (c *Content) withCA(now time.Time, memory Memory, settings Settings) (*Content, error) {
	signer, err := newAuthority(now, settings.CA)
	if err != nil {
		return nil, err
	}
	older := c.Trusted
	if memory.usable(now, memory.ServedBy, settings) {
		older = older.with(memory.ServedBy...)
	}
	c.Signer, c.Trusted = signer, bundle{signer.Certificate}.with(older.unexpired(now)...)
	c.OlderUntil = olderUntil(now, c.Trusted, settings)
	if c.Leaf != nil {
		if _, err := c.Trusted.verify(c.Leaf, settings.Names[0], now); err == nil {
			return c, nil
		}
	}
	if memory.usable(now, c.Trusted, settings) {
		c.Leaf = memory.Served
		return c, nil
	}
	return c.withLeaf(now, settings)
}

// keeping adds the CAs of what is served, and what is served if there is nothing else.
func (c *Content) keeping(now time.Time, memory Memory, settings Settings) *Content {
	if memory.usable(now, memory.ServedBy, settings) {
		c.Trusted = c.Trusted.with(memory.ServedBy.unexpired(now)...)
		if c.Leaf == nil {
			c.Leaf = memory.Served
		}
	}
	c.OlderUntil = olderUntil(now, c.Trusted, settings)
	return c
}

func (c *Content) withLeaf(now time.Time, settings Settings) (*Content, error) {
	leaf, err := c.Signer.issue(now, settings.Leaf, settings.Names)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	for _, name := range settings.Names { // a name that no certificate can be for would be tried for ever
		if _, err := (bundle{c.Signer.Certificate}).verify(leaf, name, now); err != nil {
			return nil, fmt.Errorf("issue a certificate: it would not do for %q: %w", name, err)
		}
	}
	c.Leaf = leaf
	return c, nil
}

// withoutOlder drops CAs that have expired, and those that nothing needs any more.
func (c *Content) withoutOlder(now time.Time) *Content {
	c.Trusted = c.Trusted.unexpired(now)
	if !c.OlderUntil.IsZero() && now.After(c.OlderUntil) {
		c.Trusted, c.OlderUntil = bundle{c.Signer.Certificate}, time.Time{}
	}
	if len(c.Trusted) == 1 {
		c.OlderUntil = time.Time{}
	}
	return c
}

// olderUntil is until when certificates of older CAs may be valid: none of them signs any more. Certificates and annotations count in
// seconds.
func olderUntil(now time.Time, trusted bundle, settings Settings) time.Time {
	if len(trusted) == 1 {
		return time.Time{}
	}
	return now.Add(settings.Leaf).Add(2 * time.Second).Truncate(time.Second)
}
