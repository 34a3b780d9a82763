package certs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// The limits of a replica's pauses. Any change in the cluster ends a pause, but the rate of reconciliations is limited:
// otherwise two replicas whose clocks are years apart would undo each other's work without a break.
const (
	maxPause            = time.Hour
	reconcilesPerSecond = 5
	reconcileBurst      = 50
	requestTimeout      = 10 * time.Second
)

// retries are the pauses after failures: 0.2 s, doubled up to 10 s.
var retries = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 10, Cap: 10 * time.Second, Jitter: 0.5}

// SelfSigned serves a certificate that the webhook's replicas generate themselves.
type SelfSigned struct {
	served

	settings Settings
	secrets  corev1client.SecretInterface
	core     rest.Interface
	webhooks rest.Interface // of admissionregistration.k8s.io
	changed  notify.Signal  // notified when a watched object may have changed
	limit    flowcontrol.RateLimiter
	failures failures

	// Only Run uses these.
	trust      trust
	loggedErrs string // the last logged errors of the Secret
}

// NewSelfSigned returns a certificate that is stored in the cluster of a client configuration. It sends no request yet.
func NewSelfSigned(config *rest.Config, settings Settings) (*SelfSigned, error) {
	if settings.Namespace == "" || settings.Secret == "" {
		return nil, errors.New("namespace and name of the Secret are required")
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for Secrets: %w", err)
	}
	webhooks, err := admissionclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for webhook configurations: %w", err)
	}
	return &SelfSigned{
		settings: settings,
		secrets:  core.Secrets(settings.Namespace), core: core.RESTClient(), webhooks: webhooks.RESTClient(),
		changed:  notify.NewSignal(),
		limit:    flowcontrol.NewTokenBucketRateLimiter(reconcilesPerSecond, reconcileBurst),
		failures: failures{log: settings.Log, observer: settings.Observer},
	}, nil
}

// Run keeps the certificate, the Secret and the configurations up to date until the context ends. It must be called
// only once.
func (s *SelfSigned) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	s.watchObjects(ctx, &watches)
	retry := retries
	for s.limit.Wait(ctx) == nil {
		until, err := s.reconcileOnce(ctx)
		pause := min(time.Until(until), maxPause)
		if err != nil {
			pause = min(pause, retry.Step())
		} else {
			retry = retries
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// reconcileOnce reads the cluster, serves the Secret's certificate, and takes the next steps. It returns when to
// reconcile again, and the errors of failed requests. The order of the requests matters: see the package comment.
func (s *SelfSigned) reconcileOnce(ctx context.Context) (until time.Time, err error) {
	configurations, err := s.readConfigurations(ctx)
	secret, secretErr := s.readSecret(ctx)
	now := time.Now()
	until = now.Add(maxPause)
	if secretErr != nil {
		return until, errors.Join(err, secretErr)
	}
	seen := view{now: now, configurations: configurations}
	if secret != nil {
		seen.content = readContent(secret.Data)
		s.logErrors(seen.content.errs)
		s.serve(now, seen.content)
	}
	s.trust = s.trust.observe(now, seen.content, configurations)
	seen.trustedSince = s.trust.since
	for _, step := range seen.decide(s.settings) {
		if step.action == pause {
			s.settings.Log.Debug("certificates: no step is due", "reason", step.reason, "until", step.until)
			until = minTime(until, step.until)
			continue
		}
		stepErr := s.takeStep(ctx, step, seen, secret)
		if err = errors.Join(err, stepErr); stepErr == nil {
			until = now
		}
	}
	return until, err
}

// takeStep takes one step. It is not an error if another replica was faster; its result is read next.
func (s *SelfSigned) takeStep(ctx context.Context, step step, seen view, secret *corev1.Secret) error {
	log := s.settings.Log.With("reason", step.reason)
	write := func() (bool, error) { return s.writeSecret(ctx, step.action, seen, secret) }
	if step.action == patchBundle {
		log = log.With("configuration", step.configuration.resource)
		write = func() (bool, error) { return s.patch(ctx, step.configuration, seen.content.trusted) }
	}
	isWritten, err := write()
	switch {
	case err != nil: // reported already
	case isWritten:
		log.Info("certificates: " + string(step.action))
	default:
		log.Debug("certificates: another replica " + string(step.action) + " first")
	}
	return err
}

// serve serves the certificate in the Secret from now on, if it is usable. Otherwise the current one is served until
// there is a new one.
func (s *SelfSigned) serve(now time.Time, content *content) {
	if content.leaf == nil {
		return
	}
	authority, err := content.trusted.verify(content.leaf, s.settings.Names[0], now)
	if err != nil || !s.set(content.leaf) {
		return
	}
	leaf := content.leaf.Leaf
	s.settings.Observer.CertificateExpires(leaf.NotAfter)
	s.settings.Observer.AuthorityExpires(authority.NotAfter)
	s.settings.Log.Info("certificates: serving a new certificate",
		"serial", leaf.SerialNumber.Text(16), "expires", leaf.NotAfter, "caExpires", authority.NotAfter)
}

// logErrors logs the problems of the Secret when they change.
func (s *SelfSigned) logErrors(errs []string) {
	text := strings.Join(errs, "; ")
	if text != s.loggedErrs && text != "" {
		s.settings.Log.Warn("certificates: replacing unusable content of the Secret",
			"secret", s.secretName(), "errors", text)
		s.settings.Observer.CertificateFailed(UseSecret, fmt.Errorf("use %s: %s", s.secretName(), text))
	}
	s.loggedErrs = text
}
