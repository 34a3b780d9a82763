package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// The pauses of a replica. Whatever changes in the cluster ends a pause, but no replica looks more often than its limit allows: two whose
// clocks are years apart would undo each other's work without a break.
const (
	longestPause  = time.Hour
	firstRetry    = 200 * time.Millisecond
	longestRetry  = 10 * time.Second
	looksPerSec   = 5
	looksAtOnce   = 50
	requestBudget = 10 * time.Second
)

// SelfMade is a certificate that the webhook's replicas make themselves.
type SelfMade struct {
	settings       Settings
	secrets        corev1client.SecretInterface
	configurations []configurationAPI
	bell           chan struct{} // rung when something may have changed
	limit          flowcontrol.RateLimiter
	failures       failures

	served atomic.Pointer[served]

	// Of Run alone.
	memory   Memory
	problems string // those of the Secret that were told
}

// served is a certificate, and until when it can be used.
type served struct {
	certificate *tls.Certificate
	expiry      Expiry
}

// NewSelfMade returns a certificate that is kept in the cluster of a client configuration. Nothing is asked yet.
func NewSelfMade(config *rest.Config, settings Settings) (*SelfMade, error) {
	settings, err := settings.complete()
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Secrets: %w", err)
	}
	webhooks, err := admissionclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for webhook configurations: %w", err)
	}
	return &SelfMade{
		settings:       settings,
		secrets:        core.Secrets(settings.Namespace),
		configurations: configurationAPIs(webhooks, settings),
		bell:           make(chan struct{}, 1),
		limit:          flowcontrol.NewTokenBucketRateLimiter(looksPerSec, looksAtOnce),
		failures:       failures{log: settings.Log, observer: settings.Observer},
	}, nil
}

// GetCertificate returns what is served, from memory.
func (s *SelfMade) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if now := s.served.Load(); now != nil {
		return now.certificate, nil
	}
	return nil, errNone
}

// Expiry says until when what is served can be used.
func (s *SelfMade) Expiry() Expiry {
	if now := s.served.Load(); now != nil {
		return now.expiry
	}
	return Expiry{}
}

// Ready returns why nobody can be served.
func (s *SelfMade) Ready() error {
	certificate, err := s.GetCertificate(nil)
	if err != nil {
		return err
	}
	return ready(certificate, time.Now())
}

// Run keeps the certificate, the Secret and the configurations up to date until the context ends. It is called once.
func (s *SelfMade) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	s.startWatches(ctx, &watches)
	retry := firstRetry
	for s.limit.Wait(ctx) == nil {
		outcome := s.look(ctx)
		pause := min(time.Until(outcome.until), longestPause)
		if outcome.until.IsZero() {
			pause = longestPause
		}
		if outcome.failed {
			pause, retry = min(pause, retry), min(2*retry, longestRetry)
		} else {
			retry = firstRetry
		}
		if outcome.again {
			continue
		}
		s.rest(ctx, pause)
	}
	return nil
}

// rest waits for a change, but not longer than a pause.
func (s *SelfMade) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(max(pause, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.bell:
	case <-timer.C:
	}
}

// ring says that something may have changed.
func (s *SelfMade) ring() {
	select {
	case s.bell <- struct{}{}:
	default: // it rings already
	}
}

// outcome is what follows from a look.
type outcome struct {
	again  bool      // something was written, or somebody else was faster: look again at once
	failed bool      // something did not work
	until  time.Time // when something is due; zero if nothing is
}

// look looks at the cluster, takes up what it says, and takes the next steps. The order matters: see the package comment.
func (s *SelfMade) look(ctx context.Context) outcome {
	var result outcome
	seen := s.lookAtConfigurations(ctx, &result)
	secret, err := s.readSecret(ctx)
	if err != nil {
		return outcome{failed: true}
	}
	now := time.Now()
	var content *Content
	if secret != nil {
		content = ReadContent(secret.Data, secret.Annotations)
	}
	s.tellProblems(content)
	configurations := values(seen)
	s.memory = s.memory.Observe(now, content, configurations, s.settings)
	s.serve(now)
	for _, step := range Decide(now, content, s.memory, configurations, s.settings) {
		s.take(ctx, now, step, secret, content, seen, &result)
	}
	return result
}

// take takes one step.
func (s *SelfMade) take(
	ctx context.Context, now time.Time, step Step, secret *corev1.Secret, content *Content, seen []*seenConfiguration, result *outcome,
) {
	log := s.settings.Log.With("reason", step.Reason)
	var written bool
	var err error
	switch step.Do {
	case Wait:
		result.until = earliest(result.until, step.Until)
		log.Debug("certificates: nothing to do now", "until", step.Until)
		return
	case PatchBundle:
		log = log.With("configuration", step.Configuration)
		written, err = s.patch(ctx, step.Configuration, content, seen)
	default:
		written, err = s.write(ctx, now, step, secret, content)
	}
	switch {
	case err != nil:
		result.failed = true
	case written:
		log.Info("certificates: " + string(step.Do))
		result.again = true
	default:
		log.Debug("certificates: somebody else was faster", "step", string(step.Do))
		result.again = true
	}
}

// serve serves what the memory says from now on.
func (s *SelfMade) serve(now time.Time) {
	certificate := s.memory.Served
	if certificate == nil {
		return
	}
	expiry := Expiry{Leaf: certificate.Leaf.NotAfter}
	if authority, err := s.memory.ServedBy.verify(certificate, s.settings.Names[0], now); err == nil {
		expiry.CA = authority.NotAfter
	}
	before := s.served.Load()
	if before != nil && before.certificate == certificate {
		return
	}
	s.served.Store(&served{certificate, expiry})
	if before != nil && before.expiry == expiry && before.certificate.Leaf.Equal(certificate.Leaf) {
		return
	}
	expiry.told(s.settings.Observer)
	s.settings.Log.Info("certificates: a new one is served",
		"serial", certificate.Leaf.SerialNumber.Text(16), "expires", expiry.Leaf, "caExpires", expiry.CA)
}

// tellProblems tells what is wrong with the Secret: once, and not with every look.
func (s *SelfMade) tellProblems(content *Content) {
	text := ""
	if content != nil {
		text = strings.Join(content.Problems, "; ")
	}
	if text != s.problems && text != "" {
		s.settings.Log.Warn("certificates: the Secret has something that cannot be used, which is replaced",
			"secret", s.settings.Namespace+"/"+s.settings.Secret, "problems", text)
		s.settings.Observer.CertificateFailed(UseSecret, fmt.Errorf("use Secret %s/%s: %s", s.settings.Namespace, s.settings.Secret, text))
	}
	s.problems = text
}
